package torture

import (
	"bufio"
	"encoding/json"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"time"
)

// process is this test binary in a role. It is restarted whenever it ends.
type process struct {
	*run
	setup setup
	hears func(line string) // receives each printed line
	rng   *rand.Rand

	mu      sync.Mutex
	cmd     *exec.Cmd
	retired bool
	over    sync.WaitGroup
}

func (r *run) startProcess(s setup, hears func(string)) *process {
	p := &process{run: r, setup: s, hears: hears, rng: r.random()}
	p.over.Go(func() {
		for p.runOne() {
			pause(r.ctx, 300*time.Millisecond) // its server may be down
		}
	})
	r.t.Cleanup(p.retire)
	return p
}

// runOne runs a process to its end. It returns false when the role is over.
func (p *process) runOne() bool {
	cmd := exec.Command(os.Args[0])
	p.setup.Seed = p.rng.Uint64()
	text, _ := json.Marshal(p.setup) // cannot fail for these fields
	cmd.Env = append(os.Environ(), setupVariable+"="+string(text))
	cmd.Stderr = os.Stderr
	output, err := cmd.StdoutPipe()
	if err == nil {
		_, err = cmd.StdinPipe() // nothing is written to it; it closes when the test process ends
	}
	p.mu.Lock()
	if p.retired {
		p.mu.Unlock()
		return false
	}
	if err == nil {
		err = cmd.Start()
	}
	p.cmd = cmd
	p.mu.Unlock()
	if err != nil {
		p.fail(err)
		return false
	}
	for lines := bufio.NewScanner(output); lines.Scan(); {
		p.hears(lines.Text())
	}
	_ = cmd.Wait()
	return true
}

// kill ends the process with SIGKILL.
func (p *process) kill() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil && p.cmd.Process != nil {
		_ = p.cmd.Process.Kill()
	}
}

// retire kills the process without a restart.
func (p *process) retire() {
	p.mu.Lock()
	p.retired = true
	p.mu.Unlock()
	p.kill()
	p.over.Wait()
}

func retire(processes []*process) {
	for _, p := range processes {
		p.retire()
	}
}
