package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/test/testnode"
)

// workerConfig configures a worker process of a job system: this program again, or
// node/peers.mjs.
type workerConfig struct {
	System      string          `json:"system"`
	URL         string          `json:"url"`
	Task        string          `json:"task"`
	Payload     json.RawMessage `json:"payload"`
	Connections int             `json:"connections"`
	Client      string          `json:"client,omitempty"` // the built client for Node
}

// workerVariable is the environment variable by which this program learns that it is a
// worker process.
const workerVariable = "POSTHORN_BENCH_WORKER"

// command returns the command that runs a worker process.
func (c workerConfig) command() *exec.Cmd {
	if !systems[c.System].inNode {
		cmd := exec.Command(must(os.Executable()))
		cmd.Env = append(os.Environ(), workerVariable+"="+c.encode())
		return cmd
	}
	dir := must(peersDir())
	if isOurs(c.System) {
		c.Client = filepath.Join(must(testnode.Build()), "dist", "src", "index.js")
	}
	node := filepath.Join(dir, "node_modules", ".bin", "node")
	if _, err := os.Stat(node); err != nil {
		node = "node" // of this system
	}
	return exec.Command(node, filepath.Join(dir, "peers.mjs"), c.encode())
}

func (c workerConfig) encode() string { return string(must(json.Marshal(c))) }

// peersDir returns the directory of the peers for Node.js. The first call installs
// them. It returns a skip if that is impossible.
var peersDir = sync.OnceValues(func() (string, error) {
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/posthorn/posthorn").Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w", err)
	}
	out, err := exec.Command(filepath.Join(strings.TrimSpace(string(module)), "scripts", "bench-node")).Output()
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return "", skip(strings.TrimSpace(string(failed.Stderr)))
	}
	return strings.TrimSpace(string(out)), err
})

// process is a worker process. It ends when its standard input is closed.
type process struct {
	cmd     *exec.Cmd
	in      io.WriteCloser
	answers chan string // closed when the process has ended
	errors  tail
}

// fleet is the worker processes of one system that work together.
type fleet struct {
	config    workerConfig
	processes []*process

	mu   sync.Mutex
	done int       // jobs, since the last start
	took []float64 // milliseconds of the jobs of the task note, since the last start
	more chan struct{}
}

// add starts one more process, and waits until it is ready to work.
func (f *fleet) add(ctx context.Context) {
	cmd := f.config.command()
	p := &process{cmd: cmd, answers: make(chan string, 1)}
	cmd.Stderr = &p.errors
	p.in = must(cmd.StdinPipe())
	out := must(cmd.StdoutPipe())
	if err := cmd.Start(); err != nil {
		check(skip(err.Error()))
	}
	f.processes = append(f.processes, p)
	go f.read(p, out)
	p.expect(ctx, "ready")
}

// read handles the lines of a process until it ends.
func (f *fleet) read(p *process, out io.Reader) {
	defer close(p.answers)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		switch word {
		case "n":
			number, _ := strconv.Atoi(rest)
			f.tally(number)
		case "took":
			f.time(strings.Fields(rest))
		default:
			p.answers <- word
		}
	}
	_ = p.cmd.Wait()
}

func (f *fleet) tally(n int) {
	f.mu.Lock()
	f.done += n
	f.mu.Unlock()
	select {
	case f.more <- struct{}{}:
	default:
	}
}

// time keeps the times of jobs, in microseconds.
func (f *fleet) time(took []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range took {
		microseconds, _ := strconv.ParseFloat(one, 64)
		f.took = append(f.took, microseconds/1000)
	}
}

// progress returns the number of jobs that have been done since the last start.
func (f *fleet) progress() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.done
}

// wait returns when n jobs have been done since the last start.
func (f *fleet) wait(ctx context.Context, n int) {
	for {
		done := f.progress()
		if done >= n {
			return
		}
		select {
		case <-f.more:
		case <-ctx.Done():
			fail("%d of %d jobs are done: %w%s", done, n, ctx.Err(), f.complaints())
		}
	}
}

func (f *fleet) complaints() string {
	var all strings.Builder
	for _, p := range f.processes {
		all.WriteString(p.errors.String())
	}
	return all.String()
}

// start lets all processes take jobs.
func (f *fleet) start(ctx context.Context, s setting) {
	f.mu.Lock()
	f.done, f.took = 0, nil
	f.mu.Unlock()
	tell(ctx, f.processes, "start "+string(must(json.Marshal(s))), "started")
}

func (f *fleet) stop(ctx context.Context) { tell(ctx, f.processes, "stop", "stopped") }

// ask sends a command to one process.
func (f *fleet) ask(ctx context.Context, command, answer string) {
	tell(ctx, f.processes[:1], command, answer)
}

// tell sends a command to all processes, and then waits for their answers.
func tell(ctx context.Context, processes []*process, command, answer string) {
	for _, p := range processes {
		if _, err := fmt.Fprintln(p.in, command); err != nil {
			fail("%w: %s", err, p.errors.String())
		}
	}
	for _, p := range processes {
		p.expect(ctx, answer)
	}
}

func (p *process) expect(ctx context.Context, answer string) {
	select {
	case got, ok := <-p.answers:
		if !ok {
			fail("the worker process has ended: %s", p.errors.String())
		}
		if got != answer {
			fail("the worker process said %q instead of %q", got, answer)
		}
	case <-ctx.Done():
		fail("no answer %q: %w: %s", answer, ctx.Err(), p.errors.String())
	}
}

// kill kills a process, as a crash would, and waits until it has ended. The process
// leaves the fleet.
func (f *fleet) kill() {
	p := f.processes[0]
	check(p.cmd.Process.Kill())
	for range p.answers {
	}
	f.processes = f.processes[1:]
}

// close ends the processes and waits for them.
func (f *fleet) close() {
	for _, p := range f.processes {
		p.in.Close()
		stop := time.AfterFunc(10*time.Second, func() { _ = p.cmd.Process.Kill() })
		for range p.answers {
		}
		stop.Stop()
	}
}

// tail keeps the end of the output of a process.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

func (t *tail) Write(some []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, some...)
	t.kept = t.kept[max(0, len(t.kept)-2000):]
	return len(some), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.kept))
}
