package localpg

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
)

func TestDataSurvivesRestart(t *testing.T) {
	t.Parallel()
	dir := sharedDir(t)
	first := mustStart(t, testConfig(dir))
	execute(t, first.URL(), "create table kept as select 'here' as what")
	mustStop(t, first)
	wantDead(t, dir)
	if err := first.Err(); err != nil {
		t.Errorf("Err after Stop: %v", err)
	}

	second := mustStart(t, testConfig(dir))
	if got := query(t, second.URL(), "select what from kept"); got != "here" {
		t.Errorf("got %q after restart", got)
	}
	if second.Port() != first.Port() && portFree(first.Port()) {
		t.Errorf("port changed from %d to %d though it is free", first.Port(), second.Port())
	}
}

func TestServerIsAsDocumented(t *testing.T) {
	t.Parallel()
	config := testConfig(sharedDir(t))
	config.Database = `odd "name"`
	config.Settings["work_mem"] = "5MB"
	s := mustStart(t, config)

	show := func(setting string) string { return query(t, s.SocketURL(), "show "+setting) }
	got := map[string]string{
		"database":                  query(t, s.URL(), "select current_database()"),
		"encoding":                  query(t, s.URL(), "select pg_encoding_to_char(encoding) from pg_database where datname = current_database()"),
		"collation":                 query(t, s.URL(), "select datcollate from pg_database where datname = current_database()"),
		"data_checksums":            show("data_checksums"),
		"listen_addresses":          show("listen_addresses"),
		"max_prepared_transactions": show("max_prepared_transactions"),
		"work_mem":                  show("work_mem"),
	}
	want := map[string]string{
		"database":                  `odd "name"`,
		"encoding":                  "UTF8",
		"collation":                 "C",
		"data_checksums":            "on",
		"listen_addresses":          "127.0.0.1",
		"max_prepared_transactions": "20",
		"work_mem":                  "5MB",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("server (-want +got):\n%s", diff)
	}
	if version := show("server_version"); !strings.HasPrefix(version, s.Version()) {
		t.Errorf("Version() = %q, server says %q", s.Version(), version)
	}
}

func TestOthersStayOut(t *testing.T) {
	t.Parallel()
	dir := sharedDir(t)
	s := mustStart(t, testConfig(dir))
	for _, url := range []string{s.URL(), s.SocketURL()} {
		wrong := strings.Replace(url, s.password, "guess", 1)
		if conn, err := pgx.Connect(testContext(t), wrong); err == nil {
			conn.Close(t.Context())
			t.Errorf("a wrong password was let in: %s", url)
		}
	}
	for name, want := range map[string]os.FileMode{"password": 0o600, "socket": 0o700, "pgdata": 0o700, "postgres.log": 0o600} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("mode of %s is %o, want %o", name, got, want)
		}
	}
}

// A Ctrl-C in the terminal goes to the program's process group.
func TestServerHasItsOwnProcessGroup(t *testing.T) {
	t.Parallel()
	s := mustStart(t, testConfig(sharedDir(t)))
	group, err := syscall.Getpgid(s.PID())
	if err != nil || group != s.PID() {
		t.Errorf("process group %d, %v; want %d", group, err, s.PID())
	}
}

func TestSecondServerIsRefused(t *testing.T) {
	t.Parallel()
	dir := sharedDir(t)
	mustStart(t, testConfig(dir))
	_, err := Start(testContext(t), testConfig(dir))
	wantError(t, err, dir, "already in use by the process with pid "+itoa(os.Getpid()))
}

// A process that is being started has the files of its parent until its program
// runs, the lock among them: giving the directory up must not wait for that.
func TestDirectoryIsFreeThoughAChildHasItsLock(t *testing.T) {
	t.Parallel()
	dir := sharedDir(t)
	first, err := openDirectory(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	inherited, err := syscall.Dup(int(first.lock.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	defer syscall.Close(inherited)
	if err := first.close(); err != nil {
		t.Fatal(err)
	}
	second, err := openDirectory(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.close(); err != nil {
		t.Error(err)
	}
}

// A port of those that the system gives to whoever connects might be somebody's
// when the server starts again.
func TestPortIsKeptFree(t *testing.T) {
	t.Parallel()
	for range 20 {
		port, err := choosePort(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if port >= 32768 { // the first of them on Linux; elsewhere it is later
			t.Errorf("port %d", port)
		}
	}
}

func TestBusyPort(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	busy := listener.Addr().(*net.TCPAddr).Port

	dir := sharedDir(t)
	config := testConfig(dir)
	config.Port = busy
	_, err = Start(testContext(t), config)
	wantError(t, err, "port "+itoa(busy), "in use")

	// As the port used last it is merely avoided.
	if err := os.WriteFile(filepath.Join(dir, "port"), []byte(itoa(busy)), 0o644); err != nil {
		t.Fatal(err)
	}
	s := mustStart(t, testConfig(dir))
	if s.Port() == busy {
		t.Errorf("chose the busy port %d", busy)
	}
}

func TestLongPath(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(sharedDir(t), strings.Repeat("long/", 30), `and "quoted", odd`)
	s := mustStart(t, testConfig(dir))
	if got := query(t, s.SocketURL(), "select 'ok'"); got != "ok" {
		t.Errorf("got %q over the socket", got)
	}
	short := s.socketDir
	mustStop(t, s)
	if _, err := os.Stat(short); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket's directory %s is left behind (%v)", short, err)
	}
}

func TestStopEscalates(t *testing.T) {
	t.Parallel()
	dir := sharedDir(t)
	s := mustStart(t, testConfig(dir))
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Stop(over); !errors.Is(err, context.Canceled) {
		t.Errorf("Stop with an ended context: %v", err)
	}
	wantDead(t, dir)
	mustStop(t, s) // again: nothing left to do
}

func TestBadSettingIsReported(t *testing.T) {
	t.Parallel()
	dir := sharedDir(t)
	config := testConfig(dir)
	config.Settings["shared_buffers"] = "plenty"
	_, err := Start(testContext(t), config)
	wantError(t, err, dir, "shared_buffers", "plenty")
	mustStart(t, testConfig(dir)) // the directory is free again
}

func TestReservedSettingIsRefused(t *testing.T) {
	t.Parallel()
	config := testConfig(sharedDir(t))
	config.Settings["listen_addresses"] = "*"
	_, err := Start(testContext(t), config)
	wantError(t, err, "listen_addresses")
}

func TestStartIsBoundedByContext(t *testing.T) {
	t.Parallel()
	dir := sharedDir(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, testConfig(dir)); !errors.Is(err, context.Canceled) {
		t.Errorf("Start with an ended context: %v", err)
	}
	wantDead(t, dir)
	mustStart(t, testConfig(dir))
}
