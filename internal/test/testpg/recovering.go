package testpg

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/localpg"
)

// Recovering starts a stopped server again, which then recovers and accepts no connections until
// finish is called: as a standby does that lets nobody read. The server had the URL before.
func Recovering(t testing.TB, config localpg.Config, before string) (finish func()) {
	t.Helper()
	cluster := filepath.Join(config.Dir, "pgdata")
	write := func(name string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(cluster, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("standby.signal")
	config.Settings["hot_standby"] = "off"
	u, err := url.Parse(before)
	if err == nil {
		config.Port, err = strconv.Atoi(u.Port())
	}
	if err != nil {
		t.Fatal(err)
	}
	ready := make(chan *localpg.Server, 1)
	go func() {
		server, err := localpg.Start(await.Context(t), config)
		if err != nil {
			t.Error(err)
		}
		ready <- server
	}()
	t.Cleanup(func() {
		if server := <-ready; server != nil {
			_ = server.Kill()
		}
	})
	await.True(t, "the server recovers", func() bool {
		conn, err := pgx.Connect(t.Context(), before)
		if err == nil {
			_ = conn.Close(t.Context())
			return false
		}
		answer, ok := errors.AsType[*pgconn.PgError](err)
		return ok && answer.Code == "57P03"
	})
	return func() {
		t.Helper()
		write("promote")
		content, err := os.ReadFile(filepath.Join(cluster, "postmaster.pid"))
		if err != nil {
			t.Fatal(err)
		}
		first, _, _ := strings.Cut(string(content), "\n")
		pid, err := strconv.Atoi(first)
		if err == nil {
			err = syscall.Kill(pid, syscall.SIGUSR1)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
