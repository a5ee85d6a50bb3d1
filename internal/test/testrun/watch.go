package main

import (
	"bytes"
	"context"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// watcher looks at all processes that this process and its descendants have started, and
// keeps how much processor time each has used. It needs Linux' /proc; elsewhere it sees
// nothing.
type watcher struct {
	root int

	mu        sync.Mutex
	alive     map[int]*process
	ended     []*process
	strangers map[int]bool // pids of processes that do not descend from root
	stop      func()
}

// lookEvery is how often a watcher looks. The time that a process uses after the last look
// is known only to its parent, see unseen.
const lookEvery = 50 * time.Millisecond

// firstLooks is how often a watcher reads the command line of a process.
const firstLooks = 3

// process is a process with the time that it has used itself.
type process struct {
	pid      int
	parent   *process // nil if unknown
	start    string
	looks    int
	command  string
	database string // of a session of Postgres on a test's database
	used     time.Duration
	waited   time.Duration // time of its children that have ended, with theirs
	orphan   bool          // its parent has ended before it, and does not wait for it
	ended    []*process    // its children that have ended, without orphans
}

// unseen is the time of children between the last look and their end.
func (p *process) unseen() time.Duration { return max(0, p.waited-p.seen()) }

// seen is the part of waited that the watcher has seen.
func (p *process) seen() (sum time.Duration) {
	for _, child := range p.ended {
		sum += child.all()
	}
	return sum
}

// all is the time that a process adds to its parent's when it has ended. A child that ends
// shortly before it may be missing in the last look at waited.
func (p *process) all() time.Duration { return p.used + max(p.waited, p.seen()) }

// tick is the unit of times in /proc: Linux shows all programs a hundredth of a second.
const tick = time.Second / 100

// watch looks until stop is called, which looks once more: processes that have ended since the
// last look are in the kernel's total already.
func watch(ctx context.Context, root int) *watcher {
	w := &watcher{root: root, alive: map[int]*process{}, strangers: map[int]bool{}}
	ctx, cancel := context.WithCancel(ctx)
	var looking sync.WaitGroup
	w.stop = func() { cancel(); looking.Wait() }
	looking.Go(func() {
		for every := time.NewTicker(lookEvery); ; {
			select {
			case <-every.C:
				w.look("/proc")
			case <-ctx.Done():
				every.Stop()
				w.look("/proc")
				return
			}
		}
	})
	return w
}

// processes returns the processes that the watcher has seen.
func (w *watcher) processes() []*process {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := append([]*process{}, w.ended...)
	for _, p := range w.alive {
		all = append(all, p)
	}
	return all
}

// total is the processor time of all processes, as the kernel counts it when they end.
func (w *watcher) total() time.Duration {
	var children syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &children); err != nil {
		return 0
	}
	all := time.Duration(children.Utime.Nano() + children.Stime.Nano())
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, p := range w.alive {
		all += p.all()
	}
	for _, p := range w.ended {
		if p.orphan { // no process of the run waits for it
			all += p.all()
		}
	}
	return all
}

// look reads the times of all descendants.
func (w *watcher) look(proc string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	found := w.read(proc)
	for pid, p := range w.alive {
		if now, is := found[pid]; !is || now.start != p.start {
			w.end(p)
		}
	}
	for pid := range found {
		w.take(proc, pid, found)
	}
}

func (w *watcher) end(p *process) {
	w.ended = append(w.ended, p)
	delete(w.alive, p.pid)
	if p.parent != nil && !p.orphan {
		p.parent.ended = append(p.parent.ended, p)
	}
}

// take notes one process and its ancestors, if they descend from the root. It returns nil
// for other processes.
func (w *watcher) take(proc string, pid int, found map[int]status) *process {
	now, is := found[pid]
	if !is || pid == w.root {
		return nil
	}
	p := w.alive[pid]
	if p == nil {
		parent := w.take(proc, now.parent, found)
		if parent == nil && now.parent != w.root {
			w.strangers[pid] = true
			return nil
		}
		p = &process{pid: pid, parent: parent, start: now.start}
		w.alive[pid] = p
	}
	p.used, p.waited = now.used, now.waited
	p.orphan = p.orphan || p.parent != nil && now.parent != p.parent.pid
	// The first looks may come before exec, or before a session has chosen its database.
	if p.looks++; p.looks <= firstLooks {
		p.readCommand(proc)
	}
	return p
}

// read reads the state of all processes but the known strangers.
func (w *watcher) read(proc string) map[int]status {
	dir, err := os.Open(proc)
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1) // those that were read suffice
	found, strangers := map[int]status{}, map[int]bool{}
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if w.strangers[pid] {
			strangers[pid] = true
			continue
		}
		if s, ok := parseStatus(readShort(proc + "/" + name + "/stat")); ok {
			found[pid] = s
		}
	}
	w.strangers = strangers // without those that have ended, whose pids are used again
	return found
}

// readShort reads a file of one line, or none that cannot be read. It takes half as long as
// os.ReadFile, which also asks for the size and waits for files that are not ready: looks at
// hundreds of processes are a cost of each run.
func readShort(path string) string {
	file, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return ""
	}
	defer syscall.Close(file)
	var line [1024]byte
	n, _ := syscall.Read(file, line[:])
	return string(line[:max(0, n)])
}

// testDatabase matches the names of databases that package posthorntest makes for tests, and
// the part that the databases of a run of the benchmark have in common.
var testDatabase = regexp.MustCompile(`\bposthorn_(test_[0-9a-f]{8}_[0-9]+\b|bench_[0-9a-f]{8})`)

// readCommand reads the command line. A session of Postgres shows its database there.
func (p *process) readCommand(proc string) {
	text, err := os.ReadFile(proc + "/" + strconv.Itoa(p.pid) + "/cmdline")
	if err != nil {
		return // it has ended
	}
	p.command = string(bytes.TrimRight(bytes.ReplaceAll(text, []byte{0}, []byte{' '}), " "))
	if strings.HasPrefix(p.command, sessionOf) {
		p.database = testDatabase.FindString(p.command)
	}
}

// sessionOf begins the command line of Postgres' own processes.
const sessionOf = "postgres: "

// status is one line of /proc/PID/stat.
type status struct {
	name         string
	parent       int
	start        string
	used, waited time.Duration
}

// parseStatus reads the fields by the numbers that the manual proc(5) gives them. The
// second one, the name, may contain spaces and parentheses.
func parseStatus(text string) (s status, ok bool) {
	opens, closes := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if opens < 0 || closes < opens {
		return s, false
	}
	const third = 3 // the first field after the name
	fields := strings.Fields(text[closes+1:])
	if len(fields) <= 22-third {
		return s, false
	}
	numbers := map[int]int64{}
	for _, field := range []int{4, 14, 15, 16, 17} {
		n, err := strconv.ParseInt(fields[field-third], 10, 64)
		if err != nil {
			return s, false
		}
		numbers[field] = n
	}
	return status{
		name: text[opens+1 : closes], parent: int(numbers[4]), start: fields[22-third],
		used: time.Duration(numbers[14]+numbers[15]) * tick, waited: time.Duration(numbers[16]+numbers[17]) * tick,
	}, true
}
