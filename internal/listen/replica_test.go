package listen_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testdir"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/localpg"
)

// copyCluster copies the files of a stopped server, as some sets of binaries have no
// pg_basebackup.
func copyCluster(t *testing.T, dir string) (copied string) {
	t.Helper()
	copied = testdir.New(t, "replica-").Path
	if err := exec.CommandContext(t.Context(), "cp", "-a", filepath.Join(dir, "pgdata"), copied).Run(); err != nil {
		t.Fatal(err)
	}
	return copied
}

// startReplica starts a streaming replica of a server from a copy of its files, and
// returns its URL.
func startReplica(t *testing.T, server *localpg.Server, files string) string {
	t.Helper()
	info, err := os.Stat(filepath.Join(files, "pgdata"))
	if err != nil {
		t.Fatal(err)
	}
	owner := info.Sys().(*syscall.Stat_t)
	if err := os.Chown(files, int(owner.Uid), int(owner.Gid)); err != nil {
		t.Fatal(err)
	}
	run := func(program string, arguments ...string) {
		t.Helper()
		cmd := exec.CommandContext(context.Background(), program, arguments...)
		cmd.Dir = files
		if os.Getuid() == 0 { // Postgres refuses to run as root
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}
		}
		if err := cmd.Run(); err != nil { // its output would be held open by the server
			log, _ := os.ReadFile(filepath.Join(files, "log"))
			t.Fatalf("%s: %v\n%s", filepath.Base(program), err, log)
		}
	}
	cluster := filepath.Join(files, "pgdata")
	if err := os.WriteFile(filepath.Join(cluster, "standby.signal"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := free.Addr().(*net.TCPAddr).Port
	if err := free.Close(); err != nil {
		t.Fatal(err)
	}
	control := filepath.Join(server.BinDir(), "pg_ctl")
	run(control, "start", "-w", "-D", cluster, "-l", filepath.Join(files, "log"), "-o",
		fmt.Sprintf("-p %d -c listen_addresses=127.0.0.1 -c unix_socket_directories=%s -c max_connections=200 -c max_prepared_transactions=20 -c fsync=off -c primary_conninfo=%s", port, files, server.URL()))
	t.Cleanup(func() { run(control, "stop", "-m", "immediate", "-D", cluster) })
	replica, err := url.Parse(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	replica.Host = fmt.Sprintf("127.0.0.1:%d", port)
	return replica.String()
}

// A reader on a streaming replica gets each event once, also that of a transaction that
// commits after later ones.
func TestReadOnAReplica(t *testing.T) {
	t.Parallel()
	dir := testdir.New(t, "primary-").Path
	config := testpg.Config(dir, testpg.BinDir(), map[string]string{"shared_buffers": "32MB", "fsync": "off"})
	start := func() *localpg.Server {
		server, err := localpg.Start(await.Context(t), config)
		if err != nil {
			t.Fatal(err)
		}
		return server
	}
	server := start()
	testworld.OpenClient(t, posthorn.Config{DatabaseURL: server.URL(), Migrate: true}).Close()
	if err := server.Stop(await.Context(t)); err != nil {
		t.Fatal(err)
	}
	files := copyCluster(t, dir)
	server = start()
	t.Cleanup(func() {
		if err := server.Kill(); err != nil {
			t.Error(err)
		}
	})
	w := testworld.Open(t, posthorn.Config{DatabaseURL: server.URL()})
	replica := testworld.Open(t, posthorn.Config{DatabaseURL: startReplica(t, server, files)})
	publish := func(db posthorn.DB) int64 {
		t.Helper()
		ids, err := w.Publish(t.Context(), db, posthorn.Message{Type: "order.placed"})
		if err != nil {
			t.Fatal(err)
		}
		return ids[0]
	}
	follower := replica.Read(posthorn.ReadConfig{Follow: true})
	reader := replica.Read(posthorn.ReadConfig{})
	var read []int64
	toEnd := func() {
		t.Helper()
		for e, err := range reader.Events(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			read = append(read, e.ID)
		}
	}
	arrived := func(id int64) {
		t.Helper()
		await.True(t, "the event on the replica", func() bool {
			return testworld.Ask[bool](replica, "select exists (select from posthorn.events where id = $1)", id)
		})
	}

	before := publish(w.Pool())
	slow := w.Begin()
	late := publish(slow)
	after := publish(w.Pool())
	arrived(after)
	toEnd()
	if err := slow.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	arrived(late)
	toEnd()
	slices.Sort(read)
	testworld.Equal(t, "events to the end", read, []int64{before, late, after})
	followed := replica.ReadIDs(follower, 3)
	slices.Sort(followed)
	testworld.Equal(t, "events that were followed", followed, []int64{before, late, after})
}
