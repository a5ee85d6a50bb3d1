package testredis

import (
	"os/exec"

	"github.com/posthorn/posthorn/internal/testdir"
)

// process is a redis-server.
type process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has
}

func runProcess(dir *testdir.Dir, args []string) (*process, error) {
	p := &process{cmd: exec.Command("redis-server", args...), ended: make(chan struct{})}
	dir.Attach(p.cmd)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // it is killed, or says why in its log
		close(p.ended)
	}()
	return p, nil
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails when it has ended already
	<-p.ended
}
