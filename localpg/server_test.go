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

	"github.com/posthorn/posthorn/internal/test/await"
)

// TestServer follows one server from its first start to its end. The server has the
// documented settings, rejects other users, and keeps its data over a restart.
func TestServer(t *testing.T) {
	t.Parallel()
	parent := filepath.Join(sharedDir(t), strings.Repeat("long/", 30))
	if err := os.MkdirAll(parent, 0o755); err != nil {
		t.Fatal(err)
	}
	// The directory exists, is empty and belongs to root: the server's account may
	// not enter it yet.
	dir := filepath.Join(parent, `and "quoted", odd`)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	config := testConfig(dir)
	config.Database = `odd "name"`
	config.Settings["work_mem"] = "5MB"
	first := mustStart(t, config)
	wantDocumented(t, first)
	wantOthersRejected(t, first)
	if os.Geteuid() == 0 {
		wantOwners(t, first)
	}
	// A Ctrl-C in the terminal is sent to the program's process group only.
	if group, err := syscall.Getpgid(first.PID()); err != nil || group != first.PID() {
		t.Errorf("process group %d, %v; want %d", group, err, first.PID())
	}
	_, err := Start(await.Context(t), config)
	wantError(t, err, dir, "already in use by the process with pid "+itoa(os.Getpid()))

	execute(t, first.URL(), "create table kept as select 'here' as what")
	execute(t, first.URL(), "alter role posthorn reset search_path") // clusters of earlier versions have none
	mustStop(t, first)
	wantDead(t, dir)
	if err := first.Err(); err != nil {
		t.Errorf("Err after Stop: %v", err)
	}
	if _, err := os.Stat(first.socketDir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the socket's directory %s still exists (%v)", first.socketDir, err)
	}

	second := mustStart(t, config)
	if got := query(t, second.URL(), "select what from kept"); got != "here" {
		t.Errorf("got %q after restart", got)
	}
	other := config
	other.Database = "other"
	if !Owns(config, first.URL()) || Owns(other, first.URL()) || Owns(config, strings.Replace(first.URL(), first.password, "guess", 1)) {
		t.Error("Owns does not recognise the URL of the server")
	}
	// The search_path must not begin with "$user": the user has the name of the
	// schema.
	if got := query(t, second.URL(), "show search_path"); got != "public" {
		t.Errorf("search_path of an old cluster: %q", got)
	}
	if second.Port() != first.Port() && portFree(first.Port()) {
		t.Errorf("port changed from %d to %d though it is free", first.Port(), second.Port())
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if err := second.Stop(over); !errors.Is(err, context.Canceled) {
		t.Errorf("Stop with an ended context: %v", err)
	}
	wantDead(t, dir)
	mustStop(t, second) // stopping twice does nothing
}

func wantDocumented(t *testing.T, s *Server) {
	t.Helper()
	show := func(setting string) string { return query(t, s.SocketURL(), "show "+setting) }
	got := map[string]string{
		"search_path":               query(t, s.URL(), "show search_path"),
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
		"search_path":               "public",
		"work_mem":                  "5MB",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("server (-want +got):\n%s", diff)
	}
	if version := show("server_version"); !strings.HasPrefix(version, s.Version()) {
		t.Errorf("Version() = %q, server_version is %q", s.Version(), version)
	}
}

func wantOthersRejected(t *testing.T, s *Server) {
	t.Helper()
	for _, url := range []string{s.URL(), s.SocketURL()} {
		wrong := strings.Replace(url, s.password, "guess", 1)
		if conn, err := pgx.Connect(await.Context(t), wrong); err == nil {
			conn.Close(t.Context())
			t.Errorf("a wrong password was accepted: %s", url)
		}
	}
	for name, want := range map[string]os.FileMode{"password": 0o600, "pgdata": 0o700, "postgres.log": 0o600} {
		info, err := os.Stat(filepath.Join(s.config.Dir, name))
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Mode().Perm(); got != want {
			t.Errorf("mode of %s is %o, want %o", name, got, want)
		}
	}
	info, err := os.Stat(s.socketDir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the socket's directory: %v, %v", info, err)
	}
}

// wantOwners checks that the account that runs the server for root owns the cluster
// and the socket's directory, and nothing else.
func wantOwners(t *testing.T, s *Server) {
	t.Helper()
	owner, err := serverAccount()
	if err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]uint32{
		filepath.Join(s.config.Dir, "pgdata"): owner.uid, s.socketDir: owner.uid,
		s.config.Dir: 0, filepath.Join(s.config.Dir, "postgres.log"): 0,
	} {
		if got := ownerOf(t, path); got != want {
			t.Errorf("%s belongs to uid %d, want %d", path, got, want)
		}
	}
}

// A process that is being started shares the open files of its parent until its
// program runs, the lock file included. Unlocking the directory must not wait for
// that.
func TestDirectoryIsFreeWhileChildSharesLock(t *testing.T) {
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

// A port in the ephemeral range may be in use by another program when the server
// starts again.
func TestPortIsKeptFree(t *testing.T) {
	t.Parallel()
	for range 20 {
		port, err := choosePort(0, 0)
		if err != nil {
			t.Fatal(err)
		}
		if port >= 32768 { // on Linux the ephemeral range begins here, elsewhere higher
			t.Errorf("port %d", port)
		}
	}
}

// A failed start returns an error and unlocks the directory. The next start succeeds
// whatever files the failed one has left.
func TestStartThatFails(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(sharedDir(t), "made", "by", "us")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(over, testConfig(dir)); !errors.Is(err, context.Canceled) {
		t.Errorf("Start with an ended context: %v", err)
	}
	wantDead(t, dir)
	// An interrupted initdb leaves a directory, which the next start deletes.
	unfinished := filepath.Join(dir, "pgdata.new")
	if err := os.MkdirAll(unfinished, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(unfinished, "PG_VERSION"), []byte("9\n"), 0o600); err != nil {
		t.Fatal(err)
	}

	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	busy := listener.Addr().(*net.TCPAddr).Port
	config := testConfig(dir)
	config.Port = busy
	_, err = Start(await.Context(t), config)
	wantError(t, err, "port "+itoa(busy), "in use")

	config = testConfig(dir)
	config.Settings["shared_buffers"] = "plenty"
	_, err = Start(await.Context(t), config)
	wantError(t, err, dir, "shared_buffers", "plenty")

	// A busy port that was used last is avoided without an error.
	if err := os.WriteFile(filepath.Join(dir, "port"), []byte(itoa(busy)), 0o644); err != nil {
		t.Fatal(err)
	}
	if s := mustStart(t, testConfig(dir)); s.Port() == busy {
		t.Errorf("chose the busy port %d", busy)
	}
}

func TestReservedSettingIsRefused(t *testing.T) {
	t.Parallel()
	config := testConfig(sharedDir(t))
	config.Settings["listen_addresses"] = "*"
	_, err := Start(await.Context(t), config)
	wantError(t, err, "listen_addresses")
}
