package testdir

import "os/exec"

// Start starts a process that ends with the directory. The channel is closed when the
// process has ended.
func (d *Dir) Start(cmd *exec.Cmd) (ended <-chan struct{}, err error) {
	d.Attach(cmd)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = cmd.Wait() // the process was killed, or its log shows the error
	}()
	return over, nil
}
