package torture

import (
	"bufio"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// worker is a process of a role. When it is killed, or ends, another takes its
// place.
type worker struct {
	t           *testing.T
	environment []string

	mu      sync.Mutex
	cmd     *exec.Cmd
	retired bool
	said    string // last, before it ended by itself
	over    sync.WaitGroup
}

func startWorker(t *testing.T, environment ...string) *worker {
	w := &worker{t: t, environment: environment}
	w.over.Go(w.keep)
	t.Cleanup(w.retire)
	return w
}

// keep runs one process after the other.
func (w *worker) keep() {
	for {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), w.environment...)
		cmd.Stderr = os.Stderr
		output, err := cmd.StdoutPipe()
		if err == nil {
			_, err = cmd.StdinPipe() // never written to; it closes when we end
		}
		w.mu.Lock()
		if w.retired {
			w.mu.Unlock()
			return
		}
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			w.mu.Unlock()
			w.t.Error(err)
			return
		}
		w.cmd = cmd
		w.mu.Unlock()
		for lines := bufio.NewScanner(output); lines.Scan(); {
			w.mu.Lock()
			w.said = lines.Text()
			w.mu.Unlock()
		}
		_ = cmd.Wait()
		time.Sleep(500 * time.Millisecond) // its server may be down
	}
}

// kill ends the process as kill -9 does.
func (w *worker) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cmd != nil {
		_ = w.cmd.Process.Kill()
	}
}

// retire ends it for good.
func (w *worker) retire() {
	w.mu.Lock()
	w.retired = true
	if w.cmd != nil {
		_ = w.cmd.Process.Kill()
	}
	w.mu.Unlock()
	w.over.Wait()
	if w.t.Failed() && w.said != "" {
		w.t.Log(w.said)
	}
}
