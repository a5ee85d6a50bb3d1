package testredis

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
)

// process is a redis-server with a shell beside it, which ends it when this
// process is gone: a test that panics or runs out of time cleans nothing up.
type process struct {
	cmd      *exec.Cmd
	ended    chan struct{} // closed when it has
	watchdog *exec.Cmd
	lifeline *os.File // closed by the kernel when this process ends
}

// A line from us says that the server is gone already.
const watchdog = `trap '' HUP INT TERM; read line || { kill -9 "$1"; rm -rf "$2"; }`

func runProcess(dir string, args []string) (*process, error) {
	p := &process{cmd: exec.Command("redis-server", args...), ended: make(chan struct{})}
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C is for the tests
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // it is killed, or says why in its log
		close(p.ended)
	}()
	if err := p.watch(dir); err != nil {
		p.kill()
		return nil, err
	}
	return p, nil
}

func (p *process) watch(dir string) error {
	wait, hold, err := os.Pipe()
	if err != nil {
		return err
	}
	defer wait.Close()
	cmd := exec.Command("/bin/sh", "-c", watchdog, "testredis-watchdog", strconv.Itoa(p.cmd.Process.Pid), dir)
	cmd.Stdin = wait
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		hold.Close()
		return err
	}
	p.watchdog, p.lifeline = cmd, hold
	return nil
}

func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails when it has ended already
	<-p.ended
	if p.watchdog != nil {
		_, _ = p.lifeline.WriteString("done\n")
		_ = p.lifeline.Close()
		_ = p.watchdog.Wait()
	}
}
