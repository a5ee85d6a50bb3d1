// Package testdir creates directories for servers that tests run. When the test or
// its process ends, also by a panic, a timeout or kill -9, the directory is removed
// and its processes are killed: the attached processes, and the Postgres server of
// each cluster in it. The package starts no server itself.
package testdir

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/posthorn/posthorn/internal/test/testcost"
)

//go:embed watchdog.sh
var script string

// Dir is a directory with a watchdog process that runs until Remove, or until this
// process ends. It must stay reachable: the garbage collector closes the lifeline of
// an unreachable Dir.
type Dir struct {
	Path string

	lifeline *os.File  // the kernel closes it when this process ends
	leader   *exec.Cmd // of the servers' process group
	watchdog *exec.Cmd
}

// New creates a directory for a test.
func New(t testing.TB, prefix string) *Dir {
	t.Helper()
	d, err := Make(prefix)
	if err != nil {
		t.Fatal(err)
	}
	testcost.Directory(t, d.Path)
	t.Cleanup(func() {
		if err := d.Remove(); err != nil {
			t.Errorf("remove %s: %v", d.Path, err)
		}
	})
	return d
}

// Make creates a directory, in memory if there is room. Other users may enter it,
// since root runs servers as another user.
func Make(prefix string) (*Dir, error) {
	path, err := os.MkdirTemp(parent(), prefix)
	if err != nil {
		return nil, err
	}
	d := &Dir{Path: path}
	if err := errors.Join(os.Chmod(path, 0o755), d.watch()); err != nil {
		_ = d.lifeline.Close() // nil if the watchdog was not started
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return d, nil
}

// watch starts the watchdog. It is a process because neither a cleanup function nor
// TestMain runs when the process panics or is killed.
func (d *Dir) watch() error {
	wait, hold, err := os.Pipe()
	if err != nil {
		return err
	}
	defer wait.Close()
	d.lifeline = hold
	// A process group needs a first process, and exists while it has any.
	d.leader = exec.Command("cat")
	if err := start(d.leader, wait); err != nil {
		return err
	}
	d.watchdog = exec.Command("/bin/sh", "-c", script, "testdir-watchdog", d.Path, fmt.Sprint(d.leader.Process.Pid))
	return start(d.watchdog, wait)
}

// start starts a process in a group of its own, so that a Ctrl-C reaches only the
// tests.
func start(cmd *exec.Cmd, wait *os.File) error {
	cmd.Stdin = wait
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd.Start()
}

// Attach makes a process that is started later end with the directory.
func (d *Dir) Attach(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pgid = true, d.leader.Process.Pid
}

// Remove removes the directory and kills its processes.
func (d *Dir) Remove() error {
	// The directory is removed before the watchdog runs: the watchdog must not read
	// the pid of a killed Postgres, which another process may have now. The watchdog
	// removes the rest.
	_ = os.RemoveAll(d.Path)
	_ = d.lifeline.Close()
	err := d.watchdog.Wait()
	_ = d.leader.Wait() // waits last, since it keeps the group's id; it may have been killed
	return err
}

// memory is a file system in memory, on Linux. Creating a database creates about 300
// files, which takes 8 ms there and up to 250 ms on a disk.
const memory = "/dev/shm"

// memoryNeeded leaves room for the servers of several packages. Containers often have
// only 64 MB in memory.
const memoryNeeded = 2 << 30

func parent() string {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(memory, &stat); err != nil {
		return os.TempDir()
	}
	info, err := os.Stat(memory)
	if err != nil || info.Mode()&0o002 == 0 || uint64(stat.Bavail)*uint64(stat.Bsize) < memoryNeeded {
		return os.TempDir()
	}
	return memory
}
