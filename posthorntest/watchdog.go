package posthorntest

import (
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"syscall"
)

//go:embed watchdog.sh
var watchdogScript string

// lifeline is the end of a pipe that the kernel closes when this process ends,
// be it by returning, a panic, a timeout or kill -9. It is a variable because a
// file that is garbage is closed as well.
var lifeline *os.File

// watch starts a process that waits for the end of this one and then ends the
// server in dir and removes dir. A cleanup function or TestMain would not run
// in most of those cases.
func watch(dir string) error {
	wait, hold, err := os.Pipe()
	if err != nil {
		return err
	}
	defer wait.Close()
	cmd := exec.Command("/bin/sh", "-c", watchdogScript, "posthorntest-watchdog", dir)
	cmd.Stdin = wait
	// Its own process group: a Ctrl-C for the tests is not for their watchdog.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		hold.Close()
		return fmt.Errorf("start the watchdog of the test server: %w", err)
	}
	lifeline = hold
	return nil
}
