package torture

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"testing"
)

// process is this test binary in another role.
type process struct {
	cmd   *exec.Cmd
	lines chan string // what it prints; closed at its end
}

func start(t *testing.T, environment ...string) *process {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), environment...)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil { // never written to; it closes when we end
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &process{cmd, make(chan string, 1000)}
	go p.read(output)
	return p
}

func (p *process) read(output io.Reader) {
	for lines := bufio.NewScanner(output); lines.Scan(); {
		p.lines <- lines.Text()
	}
	close(p.lines)
}

// kill ends it as kill -9 does, and yields what it had printed since.
func (p *process) kill() (rest []string) {
	_ = p.cmd.Process.Kill()
	for line := range p.lines {
		rest = append(rest, line)
	}
	_ = p.cmd.Wait()
	return rest
}
