package localpg

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// immediateGrace is the time for an immediate shutdown, which writes nothing, before
// the processes are killed.
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
		_ = cmd.Wait() // cmd.ProcessState holds the result
		close(p.done)
	}()
	return p, nil
}

// stop requests a fast shutdown, which disconnects clients and writes a checkpoint.
// If ctx ends first, stop requests an immediate shutdown, after which the next start
// recovers from the WAL, and returns an error.
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

// kill kills all processes of the server at once. Backends are not in the
// postmaster's process group, so kill lists them. The postmaster is suspended
// meanwhile: it must not start new backends or clean up after the dead ones.
func (p *process) kill() {
	p.signal(syscall.SIGSTOP)
	for _, pid := range processesIn(p.cluster) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	p.signal(syscall.SIGKILL)
}

// signal ignores the error: the only one means that the process has ended, which is
// the goal of every caller.
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
