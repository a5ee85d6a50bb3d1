package localpg

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// immediateGrace is how long an immediate shutdown may take before the
// processes are killed; it writes nothing and is normally over at once.
const immediateGrace = 5 * time.Second

// process is the postmaster, a child of this process.
type process struct {
	cmd     *exec.Cmd
	cluster string
	done    chan struct{}
}

func startProcess(cmd *exec.Cmd, cluster string) (*process, error) {
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &process{cmd: cmd, cluster: cluster, done: make(chan struct{})}
	go func() {
		_ = cmd.Wait() // how it ended is in cmd.ProcessState
		close(p.done)
	}()
	return p, nil
}

// stop asks for a fast shutdown, which disconnects clients and writes a
// checkpoint. When ctx ends first it asks for an immediate one, after which
// the next start recovers from the log, and says so.
func (p *process) stop(ctx context.Context) error {
	p.signal(syscall.SIGINT)
	select {
	case <-p.done:
		return nil
	case <-ctx.Done():
	}
	if p.ended() {
		return nil
	}
	p.abort()
	return fmt.Errorf("shut down without a checkpoint: %w", ctx.Err())
}

// abort ends the server without a checkpoint.
func (p *process) abort() {
	p.signal(syscall.SIGQUIT)
	select {
	case <-p.done:
	case <-time.After(immediateGrace):
		p.kill()
		<-p.done
	}
}

// kill ends every process of the server at once. Backends leave the
// postmaster's process group, so they are looked up; the postmaster is
// suspended meanwhile, lest it start new ones or clean up after the dead.
func (p *process) kill() {
	p.signal(syscall.SIGSTOP)
	for _, pid := range processesIn(p.cluster) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	p.signal(syscall.SIGKILL)
}

// signal fails only when the process has ended, which is what callers want.
func (p *process) signal(signal os.Signal) {
	_ = p.cmd.Process.Signal(signal)
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}
