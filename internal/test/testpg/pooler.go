// Package testpg starts Postgres servers for tests, and puts a pooler, a proxy or a
// table lock between a test and its Postgres.
package testpg

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testdir"
)

// PgBouncer is a PgBouncer of one test. The test ends it.
type PgBouncer struct {
	URL     string
	program string
	dir     *testdir.Dir
	cmd     *exec.Cmd
}

// Pooler runs a PgBouncer in transaction mode in front of a database, and returns its
// URL. All clients share two server connections, which change clients after each
// transaction. The test is skipped if PgBouncer is not installed.
func Pooler(t testing.TB, database string) (url string) {
	t.Helper()
	return StartPgBouncer(t, database).URL
}

// StartPgBouncer is [Pooler] for a test that kills it.
func StartPgBouncer(t testing.TB, database string) *PgBouncer {
	t.Helper()
	p := &PgBouncer{program: findPooler(t), dir: testdir.New(t, "pgbouncer-")}
	if err := os.Chmod(p.dir.Path, 0o777); err != nil { // for its socket, since it may run as another user
		t.Fatal(err)
	}
	if err := os.WriteFile(p.file(), []byte(poolerConfig(t, database, p.dir.Path)), 0o644); err != nil {
		t.Fatal(err)
	}
	// A socket, because a free port could be taken before PgBouncer listens.
	p.URL = "postgres://anyone@/pooled?host=" + p.dir.Path + "&port=6432"
	t.Cleanup(p.Kill)
	p.Start(t)
	return p
}

func (p *PgBouncer) file() string { return filepath.Join(p.dir.Path, "pgbouncer.ini") }

// Start starts a PgBouncer that does not run.
func (p *PgBouncer) Start(t testing.TB) {
	t.Helper()
	p.cmd = exec.Command(p.program, "-q", p.file())
	p.cmd.SysProcAttr = unprivileged(t)
	p.dir.Attach(p.cmd)
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	awaitPooler(t, p.URL)
}

// Kill ends it with SIGKILL.
func (p *PgBouncer) Kill() {
	_ = p.cmd.Process.Kill() // fails if it has ended
	_ = p.cmd.Wait()
}

func findPooler(t testing.TB) string {
	t.Helper()
	for _, name := range []string{"pgbouncer", "/usr/sbin/pgbouncer"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no pgbouncer on this machine")
	return ""
}

func poolerConfig(t testing.TB, database, dir string) string {
	t.Helper()
	config, err := pgx.ParseConfig(database)
	if err != nil {
		t.Fatal(err)
	}
	password := ""
	if config.Password != "" { // an empty password would be a syntax error
		password = fmt.Sprintf(" password='%s'", strings.ReplaceAll(config.Password, "'", "''"))
	}
	return fmt.Sprintf(`[databases]
pooled = host=%s port=%d dbname=%s user=%s%s
[pgbouncer]
listen_addr =
listen_port = 6432
unix_socket_dir = %s
auth_type = any
pool_mode = transaction
default_pool_size = 2
server_login_retry = 1
ignore_startup_parameters = search_path
`, config.Host, config.Port, config.Database, config.User, password, dir)
}

// unprivileged makes a program run as another user if the test runs as root:
// PgBouncer refuses to run as root.
func unprivileged(t testing.TB) *syscall.SysProcAttr {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	nobody, err := user.Lookup("nobody")
	if err != nil {
		t.Skip("root cannot run pgbouncer, and there is no user nobody")
	}
	uid, _ := strconv.ParseUint(nobody.Uid, 10, 32)
	gid, _ := strconv.ParseUint(nobody.Gid, 10, 32)
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

func awaitPooler(t testing.TB, url string) {
	t.Helper()
	await.True(t, "pgbouncer answers", func() bool {
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			return false
		}
		_ = conn.Close(context.WithoutCancel(t.Context()))
		return true
	})
}
