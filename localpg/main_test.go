package localpg

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testdir"
)

// parentDir is an environment variable that makes the test binary a program that
// starts a server in that directory and waits to be killed.
const parentDir = "LOCALPG_TEST_PARENT_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(parentDir); dir != "" {
		runParent(dir)
	}
	os.Exit(runTests(m))
}

// runTests sets the temporary directory of the tests: in memory, where creating a
// cluster is fast. The downloader may leave a file in it.
func runTests(m *testing.M) int {
	dir, err := testdir.Make("localpg-")
	if err != nil {
		fmt.Println(err)
		return 1
	}
	defer dir.Remove()
	if err := os.Setenv("TMPDIR", dir.Path); err != nil {
		fmt.Println(err)
		return 1
	}
	return m.Run()
}

func runParent(dir string) {
	s, err := Start(context.Background(), testConfig(dir))
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println("ready:", s.PID())
	select {}
}

// testConfig configures a server that need not survive a crash of the machine.
func testConfig(dir string) Config {
	return Config{
		Dir:      dir,
		BinDir:   os.Getenv("POSTHORN_TEST_PG_BIN"),
		Settings: map[string]string{"fsync": "off", "shared_buffers": "32MB", "dynamic_shared_memory_type": "mmap"}, // files of the directory
		Logger:   slog.New(slog.DiscardHandler),
	}
}

// sharedDir is like t.TempDir, but the account that runs Postgres for root may enter
// it.
func sharedDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "localpg-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// madeDir returns a directory with a cluster that has not been started: a copy, since
// initdb takes longer than most tests.
func madeDir(t *testing.T) string {
	t.Helper()
	template := filepath.Join(os.TempDir(), "template")
	makeTemplate.Do(func() {
		s, err := Start(await.Context(t), testConfig(template))
		if err != nil {
			return
		}
		_ = s.Stop(await.Context(t))
		_ = os.Remove(filepath.Join(template, "port")) // each copy chooses its own port
	})
	dir := sharedDir(t)
	// cp -a keeps the owners of the files.
	if output, err := exec.Command("cp", "-a", template+"/.", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	return dir
}

var makeTemplate sync.Once

func mustStart(t *testing.T, config Config) *Server {
	t.Helper()
	s, err := Start(await.Context(t), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { mustStop(t, s) })
	return s
}

func mustStop(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), await.Limit)
	defer cancel()
	if err := s.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// query runs a statement that returns one text.
func query(t *testing.T, url, sql string) string {
	t.Helper()
	ctx := await.Context(t)
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	var result string
	if err := conn.QueryRow(ctx, sql).Scan(&result); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return result
}

func execute(t *testing.T, url, sql string) {
	t.Helper()
	ctx := await.Context(t)
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// wantError checks that an error is one line that contains the given texts.
func wantError(t *testing.T, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatal("no error")
	}
	if strings.Contains(err.Error(), "\n") {
		t.Errorf("error is more than one line: %q", err)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q does not contain %q", err, text)
		}
	}
}

// wantDead checks that no process of a cluster is left.
func wantDead(t *testing.T, dir string) {
	t.Helper()
	if pids := processesIn(filepath.Join(dir, "pgdata")); len(pids) > 0 {
		t.Errorf("processes left in %s: %v", dir, pids)
	}
}
