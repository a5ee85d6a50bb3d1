package main

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testdir"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/localpg"
)

// Processes that are started together with the database, or restarted in its crash, wait while it recovers, and say so.
func TestProcessesWaitForARecoveringDatabase(t *testing.T) {
	t.Parallel()
	config := testpg.Config(testdir.New(t, "recovering-").Path, testpg.BinDir(), map[string]string{"shared_buffers": "32MB", "fsync": "off"})
	server, err := localpg.Start(await.Context(t), config)
	if err != nil {
		t.Fatal(err)
	}
	testworld.OpenClient(t, posthorn.Config{DatabaseURL: server.URL(), Migrate: true}).Close()
	if err := server.Stop(await.Context(t)); err != nil {
		t.Fatal(err)
	}
	finish := testpg.Recovering(t, config, server.URL())

	var out, log [4]testworld.Buffer
	processes := make([]*exec.Cmd, len(out))
	for i, args := range [][]string{
		{"serve", "--listen", "127.0.0.1:0"}, {"up", "--listen", "127.0.0.1:0"}, {"migrate"}, {"publish", "order.placed"},
	} {
		cmd := exec.Command("posthorn", slices.Concat(args, []string{"--database-url", server.URL()})...)
		cmd.Stdout, cmd.Stderr = &out[i], &log[i]
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		processes[i] = cmd
	}
	for i, cmd := range processes {
		await.True(t, cmd.Args[1]+" says that it waits", func() bool { return strings.Contains(log[i].String(), "waiting for the database") })
	}
	interrupted := exec.Command("posthorn", "serve", "--listen", "127.0.0.1:0", "--database-url", server.URL())
	var its testworld.Buffer
	interrupted.Stderr = &its
	if err := interrupted.Start(); err != nil {
		t.Fatal(err)
	}
	await.True(t, "another one waits", func() bool { return strings.Contains(its.String(), "waiting for the database") })
	_ = interrupted.Process.Signal(os.Interrupt)
	if err := interrupted.Wait(); err != nil {
		t.Errorf("an interrupt ends it with %v\n%s", err, its.String())
	}
	finish()
	for i, cmd := range processes {
		if i < 2 {
			await.True(t, cmd.Args[1]+" is ready", func() bool { return strings.Contains(out[i].String(), "posthorn is ready") })
			_ = cmd.Process.Signal(os.Interrupt)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v\n%s", cmd.Args[1], err, log[i].String())
		}
	}
}
