// Package testchild runs the test binary, or a program, as another process, which a test kills.
package testchild

import (
	"bufio"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testcost"
)

// Child is a process that a test has started.
type Child struct {
	*exec.Cmd
	t     testing.TB
	lines chan string // of its standard output; closed when it ends
	ended bool
}

// Start starts a process that runs one test of this package, and kills it when the test t
// ends. By the environment, TestMain or that test knows that it is in such a process.
// test may be empty if TestMain does not return then.
func Start(t testing.TB, test string, environment ...string) *Child {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.v", "-test.run=^"+test+"$")
	cmd.Env = append(os.Environ(), environment...)
	return StartProgram(t, cmd)
}

// StartProgram starts a program, and kills it when the test ends.
func StartProgram(t testing.TB, cmd *exec.Cmd) *Child {
	t.Helper()
	c := &Child{Cmd: cmd, t: t, lines: make(chan string, 1000)}
	output, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	testcost.Process(t, c.Process.Pid)
	go func() {
		defer close(c.lines)
		for lines := bufio.NewScanner(output); lines.Scan(); {
			c.lines <- lines.Text()
		}
	}()
	t.Cleanup(c.Kill)
	return c
}

// Kill kills the process with -9, unless it has ended, and returns when it has ended.
func (c *Child) Kill() {
	if !c.ended {
		_ = c.Process.Kill()
		_ = c.End() // it was killed
	}
}

// End waits until the process ends by itself, and returns the error of its end.
func (c *Child) End() error {
	c.ended = true
	for range c.lines { // they would fill the pipe
	}
	return c.Wait()
}

// Prints waits until the process prints lines that contain these texts, in this order.
func (c *Child) Prints(texts ...string) {
	c.t.Helper()
	for _, text := range texts {
		for !strings.Contains(await.Value(c.t, "the process prints "+text, c.lines), text) {
		}
	}
}

// Lines are the lines of the process's standard output. The channel is closed when it ends.
func (c *Child) Lines() <-chan string { return c.lines }

// Leads reports whether the owner of a lead is this process.
func (c *Child) Leads(owner string) bool {
	parts := strings.Split(owner, "-")
	return len(parts) > 2 && parts[len(parts)-2] == strconv.Itoa(c.Process.Pid)
}
