package localpg

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// leftoverGrace is how long a server that was left behind may take to shut
// down before it is made to.
const leftoverGrace = 30 * time.Second

// stopLeftovers ends the server that an earlier owner, killed without warning,
// has left running. We hold the lock, so nobody else looks after it, and it may
// run with other settings and on another port than asked for: starting anew is
// safer than adopting it.
func (d *directory) stopLeftovers(ctx context.Context, logger *slog.Logger) error {
	postmaster := d.postmasterPID()
	left := processesIn(d.cluster())
	if len(left) == 0 {
		return d.disownStalePID(postmaster)
	}
	logger.WarnContext(ctx, "stopping the postgres that an earlier process left behind", "dir", d.path, "pid", left[0])
	if slices.Contains(left, postmaster) {
		_ = syscall.Kill(postmaster, syscall.SIGINT)
		if gone, err := d.waitGone(ctx, leftoverGrace); gone || err != nil {
			return err
		}
	}
	// Backends without a postmaster notice its death, but not while they are
	// busy; a server that did not shut down in time is past asking.
	for _, signal := range []syscall.Signal{syscall.SIGQUIT, syscall.SIGKILL} {
		for _, pid := range processesIn(d.cluster()) {
			_ = syscall.Kill(pid, signal)
		}
		if gone, err := d.waitGone(ctx, immediateGrace); gone || err != nil {
			return err
		}
	}
	return fmt.Errorf("the postgres left behind does not end: pids %v", processesIn(d.cluster()))
}

// waitGone polls, because only a parent can wait for a process to end.
func (d *directory) waitGone(ctx context.Context, grace time.Duration) (gone bool, err error) {
	deadline := time.After(grace)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for len(processesIn(d.cluster())) > 0 {
		select {
		case <-tick.C:
		case <-deadline:
			return false, nil
		case <-ctx.Done():
			return false, fmt.Errorf("wait for the postgres left behind: %w", ctx.Err())
		}
	}
	return true, nil
}

// postmasterPID is the first line of postmaster.pid, or 0.
func (d *directory) postmasterPID() int {
	content, err := os.ReadFile(d.pidFile())
	if err != nil {
		return 0
	}
	line, _, _ := strings.Cut(string(content), "\n")
	pid, _ := strconv.Atoi(strings.TrimSpace(line))
	return pid
}

func (d *directory) pidFile() string { return filepath.Join(d.cluster(), "postmaster.pid") }

// disownStalePID deals with a postmaster.pid whose number now belongs to some
// other process, as happens in containers, where numbers start over. Postgres
// would refuse to start, unless that process is its parent: so we put our own
// number there. Removing the file would also remove the key of the shared
// memory in it, by which Postgres recognises backends that are still alive.
func (d *directory) disownStalePID(pid int) error {
	if pid == 0 || syscall.Kill(pid, 0) == syscall.ESRCH {
		return nil
	}
	content, err := os.ReadFile(d.pidFile())
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(string(content), "\n")
	return os.WriteFile(d.pidFile(), []byte(strconv.Itoa(os.Getpid())+"\n"+rest), 0o600)
}
