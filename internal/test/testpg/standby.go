package testpg

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testdir"
	"github.com/posthorn/posthorn/localpg"
)

// Server is a Postgres server of one test that can have streaming standbys, or is one. The
// test ends it.
type Server struct {
	*localpg.Server
	config    localpg.Config
	paused    []int    // the processes that Pause has stopped
	cancelled []string // the transactions whose waits CancelWaits has cancelled
}

// StartPrimary starts a server with the given settings beside those that standbys need.
func StartPrimary(t testing.TB, settings map[string]string) *Server {
	t.Helper()
	config := Config(testdir.New(t, "primary-").Path, BinDir(), map[string]string{
		"shared_buffers": "32MB", "fsync": "off",
		"shared_preload_libraries": "plpgsql", // as StartServer
		"wal_keep_size":            "256MB",   // a standby finds the changes since its copy was made
	})
	for name, value := range settings {
		config.Settings[name] = value
	}
	s := &Server{config: config}
	s.start(t)
	return s
}

func (s *Server) start(t testing.TB) {
	t.Helper()
	server, err := localpg.Start(await.Context(t), s.config)
	if err != nil {
		t.Fatal(err)
	}
	s.Server, s.config.Port = server, server.Port()
	t.Cleanup(func() { _ = server.Kill() }) // it may have been killed
}

// Standby starts a streaming standby, which synchronous_standby_names can name.
func (s *Server) Standby(t testing.TB, name string) *Server {
	t.Helper()
	config := s.config
	config.Dir, config.Port = testdir.New(t, "standby-").Path, 0
	config.Settings = map[string]string{}
	for setting, value := range s.config.Settings {
		config.Settings[setting] = value
	}
	CopyCluster(t, s.URL(), config.Dir)
	standby := &Server{config: config}
	standby.Follow(t, s, name)
	return standby
}

// Follow makes a server that does not run a standby of another one.
func (s *Server) Follow(t testing.TB, primary *Server, name string) {
	t.Helper()
	s.config.Settings["primary_conninfo"] = primary.URL() + "&application_name=" + name
	s.config.Settings["recovery_target_timeline"] = "latest"
	WriteInCluster(t, s.config.Dir, "standby.signal", "")
	s.start(t)
	primary.awaitTrue(t, "select exists (select from pg_stat_replication where application_name = $1 and state = 'streaming')", name)
}

// Restart starts a server again that was killed.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.start(t)
}

// Rejoin replaces the data of a server that was killed by a copy of a primary's, and follows
// it.
func (s *Server) Rejoin(t testing.TB, primary *Server, name string) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(s.config.Dir, "pgdata")); err != nil {
		t.Fatal(err)
	}
	CopyCluster(t, primary.URL(), s.config.Dir)
	s.Follow(t, primary, name)
}

// Detach starts a standby again that receives nothing more.
func (s *Server) Detach(t testing.TB) {
	t.Helper()
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	s.config.Settings["primary_conninfo"] = ""
	s.start(t)
}

// Received is how much of its primary's log a standby has received.
func (s *Server) Received(t testing.TB) (bytes int64) {
	t.Helper()
	conn := s.connect(t)
	defer conn.Close(context.Background())
	if err := conn.QueryRow(t.Context(), "select pg_last_wal_receive_lsn() - '0/0'").Scan(&bytes); err != nil {
		t.Fatal(err)
	}
	return bytes
}

// AwaitReceived waits until a standby has received all that its primary has written so far.
func (s *Server) AwaitReceived(t testing.TB, primary *Server) {
	t.Helper()
	conn := primary.connect(t)
	defer conn.Close(context.Background())
	var written int64
	if err := conn.QueryRow(t.Context(), "select pg_current_wal_flush_lsn() - '0/0'").Scan(&written); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the standby has received what is written", func() bool { return s.Received(t) >= written })
}

// CopyCluster copies the files of a server that runs, with its password, as some sets of
// binaries have no pg_basebackup. A server on the copy recovers from the changes since then.
func CopyCluster(t testing.TB, url, into string) {
	t.Helper()
	conn := connectTo(t, url, "postgres")
	defer conn.Close(context.Background())
	var data, label string
	if err := conn.QueryRow(t.Context(), "select current_setting('data_directory') from pg_backup_start('copy', true)").Scan(&data); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pgdata", "password"} {
		said, err := exec.CommandContext(t.Context(), "cp", "-a", filepath.Join(filepath.Dir(data), name), into).CombinedOutput()
		for line := range strings.Lines(string(said)) {
			if !strings.Contains(line, "No such file") { // a file that the server removes meanwhile is no part of the copy
				t.Fatalf("copy %s: %v: %s", name, err, said)
			}
		}
	}
	if err := conn.QueryRow(t.Context(), "select labelfile from pg_backup_stop(false)").Scan(&label); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"postmaster.pid", "postmaster.opts"} {
		if err := os.Remove(filepath.Join(into, "pgdata", name)); err != nil {
			t.Fatal(err)
		}
	}
	WriteInCluster(t, into, "backup_label", label)
}

// WriteInCluster writes a file of a cluster, which belongs to the user of the server.
func WriteInCluster(t testing.TB, dir, name, content string) {
	t.Helper()
	data := filepath.Join(dir, "pgdata")
	file := filepath.Join(data, name)
	owner, err := os.Stat(data)
	if err == nil {
		err = os.WriteFile(file, []byte(content), 0o600)
	}
	if err == nil {
		user := owner.Sys().(*syscall.Stat_t)
		err = os.Chown(file, int(user.Uid), int(user.Gid))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// SetSynchronous sets synchronous_standby_names. When it returns, all commits obey it.
func (s *Server) SetSynchronous(t testing.TB, names string) {
	t.Helper()
	conn := s.connect(t)
	defer conn.Close(context.Background())
	for _, statement := range []string{"alter system set synchronous_standby_names = '" + names + "'", "select pg_reload_conf()"} {
		if _, err := conn.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	s.awaitTrue(t, "select current_setting('synchronous_standby_names') = $1", names)
	// The checkpointer tells commits of the setting. Its checkpoints come after that.
	if _, err := conn.Exec(t.Context(), "checkpoint"); err != nil {
		t.Fatal(err)
	}
}

// CancelWaits cancels the waits of commits for a synchronous standby, each once, and reports
// whether there were any. A second request could cancel a later statement of the session.
func (s *Server) CancelWaits(t testing.TB) bool {
	t.Helper()
	conn := s.connect(t)
	defer conn.Close(context.Background())
	rows, _ := conn.Query(t.Context(), `
		with waiting as materialized (
			select pid, backend_xid::text as xid from pg_stat_activity where wait_event = 'SyncRep' and backend_xid::text <> all ($1))
		select xid from waiting where pg_cancel_backend(pid)`, append([]string{}, s.cancelled...))
	waits, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	s.cancelled = append(s.cancelled, waits...)
	return len(waits) > 0
}

// AwaitWait waits until a commit waits for a synchronous standby.
func (s *Server) AwaitWait(t testing.TB) {
	t.Helper()
	s.awaitTrue(t, "select exists (select from pg_stat_activity where wait_event = 'SyncRep')")
}

// Promote makes a standby a primary.
func (s *Server) Promote(t testing.TB) {
	t.Helper()
	s.awaitTrue(t, "select pg_promote()")
	s.awaitTrue(t, "select not pg_is_in_recovery()")
}

// Pause stops all processes of a server. They keep their connections.
func (s *Server) Pause(t testing.TB) {
	t.Helper()
	conn := s.connect(t)
	if err := syscall.Kill(s.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.paused = []int{s.PID()}
	rows, _ := conn.Query(t.Context(), "select pid from pg_stat_activity")
	backends, err := pgx.CollectRows(rows, pgx.RowTo[int])
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range backends {
		_ = syscall.Kill(pid, syscall.SIGSTOP) // it may have ended
		s.paused = append(s.paused, pid)
	}
	conn.PgConn().Conn().Close()
}

// Resume lets the processes of a paused server go on.
func (s *Server) Resume() {
	for _, pid := range s.paused {
		_ = syscall.Kill(pid, syscall.SIGCONT) // it may have been killed
	}
	s.paused = nil
}

// awaitTrue waits until a query returns true, each time on a new connection.
func (s *Server) awaitTrue(t testing.TB, query string, args ...any) {
	t.Helper()
	await.True(t, query, func() bool {
		conn := s.connect(t)
		defer conn.Close(context.Background())
		var holds bool
		if err := conn.QueryRow(t.Context(), query, args...).Scan(&holds); err != nil {
			t.Fatal(err)
		}
		return holds
	})
}

func (s *Server) connect(t testing.TB) *pgx.Conn {
	t.Helper()
	return connectTo(t, s.URL(), "postgres")
}

// connectTo opens a session of another database of a server.
func connectTo(t testing.TB, url, database string) *pgx.Conn {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	config.Database = database
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}
