package localpg

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/posthorn/posthorn/internal/test/await"
)

func itoa(n int) string { return strconv.Itoa(n) }

// When a killed container starts again, the process id in the lock files of Postgres
// may belong to another program.
func TestRecoversFromKill(t *testing.T) {
	t.Parallel()
	dir := madeDir(t)
	first := mustStart(t, testConfig(dir))
	execute(t, first.URL(), "create table kept as select 'here' as what")
	if err := first.Kill(); err != nil {
		t.Fatal(err)
	}
	wantDead(t, dir)
	other := first.directory.owner.command(t.Context(), "/", "/usr/bin/tail", "-f", "/dev/null")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := other.Process.Kill(); err != nil {
			t.Errorf("the other program has ended: %v", err)
		}
		_ = other.Wait() // it was killed
	})
	replacePID(t, filepath.Join(dir, "pgdata", "postmaster.pid"), other.Process.Pid)
	replacePID(t, filepath.Join(dir, "socket", ".s.PGSQL."+itoa(first.Port())+".lock"), other.Process.Pid)

	second := mustStart(t, testConfig(dir))
	if got := query(t, second.URL(), "select what from kept"); got != "here" {
		t.Errorf("got %q after recovery", got)
	}
}

func TestErrAfterUnexpectedEnd(t *testing.T) {
	t.Parallel()
	dir := madeDir(t)
	s := mustStart(t, testConfig(dir))
	if err := s.Err(); err != nil {
		t.Errorf("Err while running: %v", err)
	}
	if err := syscall.Kill(s.PID(), syscall.SIGQUIT); err != nil {
		t.Fatal(err)
	}
	await.Closed(t, "the server has ended", s.Done())
	wantError(t, s.Err(), dir, "ended by itself", "immediate shutdown")
	if d, err := openDirectory(dir, nil); err != nil {
		t.Errorf("the directory is not free: %v", err)
	} else if err := d.close(); err != nil {
		t.Error(err)
	}
}

// A server that a killed program has left running is stopped by the next Start.
func TestTakesOverFromKilledParent(t *testing.T) {
	t.Parallel()
	dir := madeDir(t)
	left := startKilledParent(t, dir)
	if err := syscall.Kill(left, 0); err != nil {
		t.Fatalf("the server did not outlive its parent: %v", err)
	}
	s := mustStart(t, testConfig(dir))
	if s.PID() == left {
		t.Error("the old server was adopted")
	}
	mustStop(t, s)
	wantDead(t, dir)
}

// startKilledParent runs this test binary as a program with a server, kills it
// and returns the pid of the server.
func startKilledParent(t *testing.T, dir string) int {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), parentDir+"="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err := cmd.Process.Kill(); err != nil {
		t.Error(err)
	}
	_ = cmd.Wait() // it was killed
	pid, ok := strings.CutPrefix(strings.TrimSpace(line), "ready: ")
	if !ok {
		t.Fatalf("parent printed %q (%v)", line, err)
	}
	n, err := strconv.Atoi(pid)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func replacePID(t *testing.T, lockFile string, pid int) {
	t.Helper()
	content, err := os.ReadFile(lockFile)
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(content), "\n")
	if err := os.WriteFile(lockFile, []byte(itoa(pid)+"\n"+rest), 0o600); err != nil {
		t.Fatal(err)
	}
}
