package pg_test

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/posthorntest"
)

func TestOpenKnowsAPooler(t *testing.T) {
	t.Parallel()
	database := posthorntest.Database(t)
	if !openURL(t, database, pgx.QueryExecModeCacheStatement).Direct() {
		t.Error("the server is taken for a pooler")
	}
	if openURL(t, pooler(t, database), pgx.QueryExecModeCacheStatement).Direct() {
		t.Error("the pooler is taken for the server")
	}
}

// Many clients share two connections, which go from one to another after each
// transaction.
func TestTakeThroughAPooler(t *testing.T) {
	t.Parallel()
	pool := openURL(t, pooler(t, posthorntest.Database(t)), pgx.QueryExecModeCacheStatement)
	group := defineGroup(t, pool, "g", pg.GroupConfig{})
	const publishers, each = 4, 20
	var wait sync.WaitGroup
	for range publishers {
		wait.Go(func() {
			for range each {
				if _, err := pg.Publish(t.Context(), pool, ns, messages[1]); err != nil {
					t.Error(err)
				}
			}
		})
	}
	var mu sync.Mutex
	seen := map[int64]int{}
	deadline := time.Now().Add(time.Minute)
	for range 4 {
		wait.Go(func() {
			var last pg.Lease
			for time.Now().Before(deadline) {
				next := takeOf(group)
				next.MaxEvents, next.Settle = 7, last
				lease, err := pool.Take(t.Context(), next)
				if err != nil {
					t.Error(err)
					return
				}
				last = lease
				mu.Lock()
				for _, e := range lease.Events {
					seen[e.ID]++
				}
				done := len(seen) == publishers*each
				mu.Unlock()
				if done && !lease.Held() {
					return
				}
			}
		})
	}
	wait.Wait()
	for id, n := range seen {
		if n != 1 {
			t.Errorf("event %d came %d times", id, n)
		}
	}
	if len(seen) != publishers*each {
		t.Errorf("%d events", len(seen))
	}
}

// pooler runs a PgBouncer in transaction mode in front of a database, and
// returns the URL to use instead.
func pooler(t *testing.T, database string) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/pgbouncer")
	}
	if err != nil {
		t.Skip("no pgbouncer on this machine")
	}
	config, err := pgx.ParseConfig(database)
	check(t, err)
	dir, err := os.MkdirTemp("", "pgbouncer") // short: a socket's path may have 107 bytes
	check(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	check(t, os.Chmod(dir, 0o777)) // it may run as somebody else
	file := filepath.Join(dir, "ini")
	check(t, os.WriteFile(file, fmt.Appendf(nil, `
[databases]
* = host=%s port=%d user=%s password=%s
[pgbouncer]
listen_addr =
listen_port = 6432
unix_socket_dir = %s
auth_type = any
pool_mode = transaction
default_pool_size = 2
`, config.Host, config.Port, config.User, config.Password, dir), 0o644))
	startPooler(t, exec.Command(program, file))
	waitFor(t, filepath.Join(dir, ".s.PGSQL.6432"))
	return (&url.URL{
		Scheme: "postgres", User: url.User(config.User), Path: "/" + config.Database,
		RawQuery: url.Values{"host": {dir}, "port": {"6432"}}.Encode(),
	}).String()
}

func startPooler(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if os.Geteuid() == 0 { // it refuses to run as root
		nobody, err := user.Lookup("nobody")
		check(t, err)
		uid, err := strconv.ParseUint(nobody.Uid, 10, 32)
		check(t, err)
		gid, err := strconv.ParseUint(nobody.Gid, 10, 32)
		check(t, err)
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	check(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // fails when it has ended already
		_ = cmd.Wait()
	})
}

// waitFor waits until somebody answers at a socket, which is there before that.
func waitFor(t *testing.T, path string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		if conn, err := net.Dial("unix", path); err == nil {
			check(t, conn.Close())
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatalf("nobody answers at %s in time", path)
}
