// Package testdir makes directories for servers that tests run. When the test is
// over, or its process is gone, be it by returning, a panic, a timeout or kill -9,
// the directory goes, and what runs there ends: processes that were attached to it,
// and the Postgres of each cluster in it. It starts no server.
package testdir

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
)

//go:embed watchdog.sh
var script string

// Dir is a directory with its watchdog, which lives until Remove or until this
// process ends. It must stay reachable: a file that is garbage is closed.
type Dir struct {
	Path string

	lifeline *os.File  // closed by the kernel when this process ends
	leader   *exec.Cmd // of the process group of the servers
	watchdog *exec.Cmd
}

// New makes a directory for a test.
func New(t testing.TB, prefix string) *Dir {
	t.Helper()
	d, err := Make(prefix)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Remove(); err != nil {
			t.Errorf("remove %s: %v", d.Path, err)
		}
	})
	return d
}

// Make makes a directory, in memory if there is room, and open to the user that
// runs a server when root runs the tests.
func Make(prefix string) (*Dir, error) {
	path, err := os.MkdirTemp(parent(), prefix)
	if err != nil {
		return nil, err
	}
	d := &Dir{Path: path}
	if err := errors.Join(os.Chmod(path, 0o755), d.watch()); err != nil {
		_ = d.lifeline.Close() // if there is one
		return nil, errors.Join(err, os.RemoveAll(path))
	}
	return d, nil
}

// watch starts the watchdog. A cleanup function or TestMain would not run when
// the process panics or is killed.
func (d *Dir) watch() error {
	wait, hold, err := os.Pipe()
	if err != nil {
		return err
	}
	defer wait.Close()
	d.lifeline = hold
	// A group needs a process to begin with, and keeps its number while it has any.
	d.leader = exec.Command("cat")
	if err := start(d.leader, wait); err != nil {
		return err
	}
	d.watchdog = exec.Command("/bin/sh", "-c", script, "testdir-watchdog", d.Path, fmt.Sprint(d.leader.Process.Pid))
	return start(d.watchdog, wait)
}

// start starts a process in a group of its own: a Ctrl-C is for the tests.
func start(cmd *exec.Cmd, wait *os.File) error {
	cmd.Stdin = wait
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd.Start()
}

// Attach lets a process that is started later end with the directory.
func (d *Dir) Attach(cmd *exec.Cmd) {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setpgid, cmd.SysProcAttr.Pgid = true, d.leader.Process.Pid
}

// Remove removes the directory and ends what still runs there.
func (d *Dir) Remove() error {
	// The watchdog must not meet the pid of a Postgres that was killed, which may be
	// another process's by now. What is not gone after this, it removes.
	_ = os.RemoveAll(d.Path)
	_ = d.lifeline.Close()
	err := d.watchdog.Wait()
	_ = d.leader.Wait() // only now, since it keeps the group's number; it may be killed
	return err
}

// A file system in memory, on Linux. Creating a database creates some 300
// files: 8 ms there, and up to 250 ms on a disk.
const memory = "/dev/shm"

// memoryNeeded leaves room for the servers of several packages. Containers
// often have only 64 MB there.
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
