package judge

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testchild"
	"github.com/posthorn/posthorn/internal/test/testnode"
)

// client is a client to judge.
type client struct {
	name    string
	program func(testing.TB) *exec.Cmd // skips the test if its language is missing
}

var clients = []client{
	{"go", func(testing.TB) *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), asProgram+"=yes")
		return cmd
	}},
	{"typescript", func(t testing.TB) *exec.Cmd {
		return exec.Command("node", "--enable-source-maps", filepath.Join(testnode.Dir(t), "dist", "test", "judged.js"))
	}},
}

// process is a process of a client's program.
type process struct {
	*testchild.Child
	t       testing.TB
	in      *json.Encoder
	answers chan report // closed when the process has ended

	mu      sync.Mutex
	reports []report // besides answers
}

// start starts a process that gives these commands. After open, its calls are recorded unless
// nobody asks for them.
func (c client) start(t testing.TB, database string, commands ...command) *process {
	t.Helper()
	p := c.launch(t, true)
	p.do(command{Do: "open", Database: database})
	for _, command := range commands {
		p.do(command)
	}
	return p
}

func (c client) launch(t testing.TB, recorded bool) *process {
	t.Helper()
	cmd := c.program(t)
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Child: testchild.StartProgram(t, cmd), t: t, in: json.NewEncoder(in), answers: make(chan report, 10)}
	t.Cleanup(func() { _ = in.Close() }) // it may have ended
	go p.listen(recorded)
	return p
}

func (p *process) listen(recorded bool) {
	defer close(p.answers)
	for line := range p.Lines() {
		var r report
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			r = report{At: "answer", Error: "this is no report: " + line}
		}
		if r.At == "answer" {
			p.answers <- r
		} else if recorded || r.At == "stopped" {
			p.mu.Lock()
			p.reports = append(p.reports, r)
			p.mu.Unlock()
		}
	}
}

// do gives a command, which must succeed.
func (p *process) do(c command) report {
	p.t.Helper()
	answer := p.try(c)
	if answer.Error != "" {
		p.t.Fatalf("%s: %s", c.Do, answer.Error)
	}
	return answer
}

// try gives a command that may fail.
func (p *process) try(c command) report {
	p.t.Helper()
	if err := p.in.Encode(c); err != nil {
		p.t.Fatal(err)
	}
	return await.Value(p.t, "answer to "+c.Do, p.answers)
}

// send publishes events or enqueues jobs, and returns their ids.
func (p *process) send(c command) []int64 {
	p.t.Helper()
	var ids []int64
	for _, text := range p.do(c).IDs {
		id, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			p.t.Fatal(err)
		}
		ids = append(ids, id)
	}
	return ids
}

// heard returns the reports of a kind, of an event or job if its id is not 0.
func (p *process) heard(at string, id int64) []report {
	p.mu.Lock()
	defer p.mu.Unlock()
	var found []report
	for _, r := range p.reports {
		if r.At == at && (id == 0 || r.ID == strconv.FormatInt(id, 10)) {
			found = append(found, r)
		}
	}
	return found
}

// await waits until there are n reports of a kind, and returns the last of them.
func (p *process) await(n int, at string, id int64) report {
	p.t.Helper()
	await.True(p.t, at+" of "+strconv.FormatInt(id, 10), func() bool { return len(p.heard(at, id)) >= n })
	return p.heard(at, id)[n-1]
}

// drain stops the process, and waits for its end.
func (p *process) drain() {
	p.t.Helper()
	p.do(command{Do: "stop"})
	p.drained()
}

// drainHeld stops the process, and ends its holds until it has ended.
func (p *process) drainHeld() {
	p.t.Helper()
	p.do(command{Do: "stop"})
	await.True(p.t, "the process drains", func() bool {
		_ = p.in.Encode(command{Do: "go"}) // it may have ended
		for len(p.answers) > 0 {
			<-p.answers
		}
		return len(p.heard("stopped", 0)) > 0
	})
	p.drained()
}

// drained waits for the end of a process that was told to stop.
func (p *process) drained() {
	p.t.Helper()
	if r := p.await(1, "stopped", 0); r.Error != "" {
		p.t.Errorf("run: %s", r.Error)
	}
	await.Closed(p.t, "the process ends", p.answers)
	if err := p.End(); err != nil {
		p.t.Error(err)
	}
}

func (p *process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.Process.Signal(s); err != nil {
		p.t.Fatal(err)
	}
}
