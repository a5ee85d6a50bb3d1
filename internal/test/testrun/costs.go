package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/test/testcost"
)

// costs measures the processor time of the tests: of their own processes by a profile,
// and of Postgres and other programs by looking at these.
type costs struct {
	dir      string // of the files that the units write
	watching *watcher

	mu   sync.Mutex
	runs []*unitRun
}

// unitRun is a run of a unit's tests.
type unitRun struct {
	unit    string
	program string
	pid     int // of go tool test2json, which runs the program
	notes   string
	profile string
}

// measure makes a run of a unit's tests write what is needed. The returned function
// takes the pid of the run.
func (c *costs) measure(u unit, cmd *exec.Cmd) (started func(pid int)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	file := filepath.Join(c.dir, fmt.Sprintf("run-%d", len(c.runs)))
	r := &unitRun{unit: u.name, program: u.program, notes: file + ".notes", profile: file + ".profile"}
	c.runs = append(c.runs, r)
	cmd.Env = append(cmd.Env, testcost.File+"="+r.notes)
	cmd.Args = append(cmd.Args, "-test.cpuprofile="+r.profile)
	return func(pid int) {
		c.mu.Lock()
		defer c.mu.Unlock()
		r.pid = pid
	}
}

// cost is the processor time of a test.
type cost struct {
	name                    string
	own, sessions, programs time.Duration
}

func (c cost) sum() time.Duration { return c.own + c.sessions + c.programs }

// bill is the processor time of a whole run.
type bill struct {
	tests    map[string]*cost         // by test and unit
	packages map[string]*cost         // by unit; with the time of no single test
	servers  map[string]time.Duration // of the servers that all packages share, by purpose
	others   time.Duration            // of compilers and this process' helpers
	all      time.Duration            // of all processes of the run, as the kernel counts it
}

// sum adds up what was seen.
func (c *costs) sum() *bill {
	c.mu.Lock()
	defer c.mu.Unlock()
	b := &bill{tests: map[string]*cost{}, packages: map[string]*cost{}, servers: map[string]time.Duration{}, all: c.watching.total()}
	owners := c.readNotes()
	for _, p := range c.watching.processes() {
		b.add(owners.of(p), p)
	}
	for _, r := range c.runs {
		byTest, _ := profileByTest(r.profile) // there is none if the process was killed
		for test, took := range byTest {
			if test != "" {
				entry(b.tests, test+" of "+r.unit).own += took
			}
		}
	}
	return b
}

// add adds the time of a process, and of those of its children that were not seen.
func (b *bill) add(of owner, p *process) {
	switch {
	case of.unit == "" && isServer(p):
		b.servers[purpose(p)] += p.used
		b.servers["sessions that ended before they were seen"] += p.unseen()
		return
	case of.unit == "":
		b.others += p.used + p.unseen()
		return
	}
	for _, c := range b.entries(of) {
		switch {
		case of.own:
			c.own += p.used
			c.programs += p.unseen()
		case isServer(p):
			c.sessions += p.used + p.unseen()
		default:
			c.programs += p.used + p.unseen()
		}
	}
}

func (b *bill) entries(of owner) []*cost {
	all := []*cost{entry(b.packages, of.unit)}
	if of.test != "" {
		all = append(all, entry(b.tests, of.test+" of "+of.unit))
	}
	return all
}

func entry(of map[string]*cost, name string) *cost {
	if of[name] == nil {
		of[name] = &cost{name: name}
	}
	return of[name]
}

// isServer reports whether this is a process of Postgres.
func isServer(p *process) bool {
	program, _, _ := strings.Cut(p.command, " ")
	return strings.HasPrefix(p.command, sessionOf) || filepath.Base(program) == "postgres"
}

// purpose says for what a process of a shared server is.
func purpose(p *process) string {
	title, is := strings.CutPrefix(p.command, sessionOf)
	words := strings.Fields(title)
	switch {
	case !is || len(words) == 0:
		return "postmaster"
	case strings.HasPrefix(title, "autovacuum worker"):
		return "autovacuum worker"
	case strings.Contains(title, "127.0.0.1") || strings.Contains(title, "[local]"):
		return "sessions of database " + words[min(1, len(words)-1)] // where databases are made and dropped
	default:
		return strings.TrimSpace(title)
	}
}

// owner is the unit and the test that a process works for. They are empty if there is
// none.
type owner struct {
	unit, test string
	own        bool // it is the process of the tests itself
}

// owners tells the owner of a process.
type owners struct {
	runs        map[int]*unitRun
	databases   map[string]owner
	directories map[string]owner
	processes   map[int]owner
	known       map[*process]owner
}

func (c *costs) readNotes() *owners {
	o := &owners{map[int]*unitRun{}, map[string]owner{}, map[string]owner{}, map[int]owner{}, map[*process]owner{}}
	for _, r := range c.runs {
		o.runs[r.pid] = r
		text, _ := os.ReadFile(r.notes) // the tests may have used nothing
		for line := range strings.Lines(string(text)) {
			fields := strings.Split(strings.TrimSpace(line), "\t")
			if len(fields) != 3 {
				continue
			}
			of := owner{unit: r.unit, test: fields[2]}
			switch fields[0] {
			case testcost.KindDatabase:
				o.databases[fields[1]] = of
			case testcost.KindDirectory:
				o.directories[fields[1]] = of
			case testcost.KindProcess:
				var pid int
				_, _ = fmt.Sscan(fields[1], &pid)
				o.processes[pid] = of
			}
		}
	}
	return o
}

// of returns the owner of a process: its own, or that of the process that started it.
func (o *owners) of(p *process) owner {
	if p == nil {
		return owner{}
	}
	if of, is := o.known[p]; is {
		return of
	}
	of, is := o.find(p)
	if !is {
		of = o.of(p.parent)
		of.own = false
	}
	o.known[p] = of
	return of
}

func (o *owners) find(p *process) (of owner, is bool) {
	if of, is = o.databases[p.database]; is {
		return of, true
	}
	if of, is = o.processes[p.pid]; is {
		return of, true
	}
	for dir, of := range o.directories {
		if strings.Contains(p.command, dir) {
			return of, true
		}
	}
	if r := o.runs[p.pid]; r != nil {
		return owner{unit: r.unit}, true
	}
	for _, r := range o.runs {
		if strings.HasPrefix(p.command, r.program+" ") && strings.HasSuffix(p.command, r.profile) {
			return owner{unit: r.unit, own: true}, true
		}
	}
	return owner{}, false
}

// print lists the most expensive tests and packages, and the total.
func (b *bill) print(w io.Writer) {
	const columns = "%9s %8s %8s %8s"
	head := fmt.Sprintf(columns, "sum", "test", "Postgres", "programs")
	fmt.Fprintf(w, "\nprocessor seconds of tests, most expensive first:\n%s\n", head)
	line := func(c *cost) {
		fmt.Fprintf(w, columns+"  %s\n", seconds(c.sum()), seconds(c.own), seconds(c.sessions), seconds(c.programs), c.name)
	}
	for _, c := range mostExpensive(b.tests, mostTests) {
		line(c)
	}
	fmt.Fprintf(w, "processor seconds of packages:\n%s\n", head)
	seen := b.others
	for _, c := range mostExpensive(b.packages, len(b.packages)) {
		seen += c.sum()
		line(c)
	}
	fmt.Fprintln(w, "processor seconds of no package:")
	for _, purpose := range slices.SortedFunc(maps.Keys(b.servers), func(x, y string) int { return cmp.Compare(b.servers[y], b.servers[x]) }) {
		seen += b.servers[purpose]
		fmt.Fprintf(w, "%9s  shared Postgres: %s\n", seconds(b.servers[purpose]), purpose)
	}
	fmt.Fprintf(w, "%9s  compiling\n%9s  not seen\n", seconds(b.others), seconds(b.all-seen))
	fmt.Fprintf(w, "%9s  together\n", seconds(b.all))
	fmt.Fprintf(w, "A test's share of its process is from a profile, at a hundred samples a second. Sessions count by their database; they are looked at every %v.\n", lookEvery)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()) }

func mostExpensive(of map[string]*cost, most int) []*cost {
	all := slices.SortedFunc(maps.Values(of), func(a, b *cost) int { return cmp.Compare(b.sum(), a.sum()) })
	return all[:min(len(all), most)]
}
