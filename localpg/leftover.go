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

// leftoverGrace is the time that a leftover server has to shut down before it is
// killed.
const leftoverGrace = 30 * time.Second

// stopLeftovers stops the server that a killed process has left running. This process
// holds the lock, so no other process uses that server. Its settings and port may
// differ from the configured ones, so it is replaced and not adopted.
func (d *directory) stopLeftovers(ctx context.Context, logger *slog.Logger) error {
	postmaster := d.postmasterPID()
	left := processesIn(d.cluster())
	if len(left) == 0 {
		return d.disownStalePID(postmaster)
	}
	logger.WarnContext(ctx, "stopping the postgres that an earlier process left running", "dir", d.path, "pid", left[0])
	if slices.Contains(left, postmaster) {
		_ = syscall.Kill(postmaster, syscall.SIGINT)
		if gone, err := d.waitGone(ctx, leftoverGrace); gone || err != nil {
			return err
		}
	}
	// Backends without a postmaster notice its death only when they are idle, so the
	// signals are sent to every process of the cluster.
	for _, signal := range []syscall.Signal{syscall.SIGQUIT, syscall.SIGKILL} {
		for _, pid := range processesIn(d.cluster()) {
			_ = syscall.Kill(pid, signal)
		}
		if gone, err := d.waitGone(ctx, immediateGrace); gone || err != nil {
			return err
		}
	}
	return fmt.Errorf("the leftover postgres does not end: pids %v", processesIn(d.cluster()))
}

// waitGone waits until no process of the cluster is left. It polls, because only a
// parent can wait for a process to end.
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
			return false, fmt.Errorf("wait for the leftover postgres: %w", ctx.Err())
		}
	}
	return true, nil
}

// postmasterPID is the process id in postmaster.pid, or 0.
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

// disownStalePID replaces the process id in postmaster.pid if another program has it
// now, which happens in containers, where ids start over. Postgres would refuse to
// start, unless the id is that of its parent: so the file gets this process's id.
// Removing the file would also remove the shared memory key in it, by which Postgres
// recognises backends that still run.
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
