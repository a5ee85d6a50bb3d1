package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// jobTag is the tag of the jobs in the rows with worker processes, and the name of the
// group.
const jobTag = "bench"

// runWorker is the program as a worker process of Posthorn or River. The commands and
// answers are those of node/peers.mjs.
func runWorker(encoded string, in io.Reader, out io.Writer) error {
	return caught(func() {
		var c workerConfig
		check(json.Unmarshal([]byte(encoded), &c))
		ctx := context.Background()
		r := &reporter{news: make(chan struct{}, 1), out: bufio.NewWriter(out)}
		w := newJobWorker(ctx, c, r)
		go r.run()
		r.say("ready")
		commands := bufio.NewScanner(in)
		for commands.Scan() {
			word, rest, _ := strings.Cut(commands.Text(), " ")
			switch word {
			case "start":
				var s setting
				check(json.Unmarshal([]byte(rest), &s))
				w.start(ctx, s)
				r.say("started")
			case "stop":
				w.stop(ctx)
				r.report()
				r.say("stopped")
			}
		}
	})
}

// jobWorker works on jobs from start to stop, again and again.
type jobWorker interface {
	start(ctx context.Context, s setting)
	stop(ctx context.Context)
}

func newJobWorker(ctx context.Context, c workerConfig, r *reporter) jobWorker {
	if c.System == riverSystem {
		return newRiverWorker(ctx, c, r)
	}
	return &posthornWorker{config: c, reporter: r}
}

// reporter writes the lines of a worker process.
type reporter struct {
	done atomic.Int64  // since the last report
	news chan struct{} // receives when there is something to report
	mu   sync.Mutex
	out  *bufio.Writer

	timing sync.Mutex
	took   []int64 // microseconds of the jobs of the task note, since the last report
}

// did counts jobs that are done.
func (r *reporter) did(n int) {
	if r.done.Add(int64(n)) == int64(n) { // the first since the last report
		select {
		case r.news <- struct{}{}:
		default:
		}
	}
}

// run reports a moment after there is something to report. A process that waits wakes up
// for nothing: with a tick every 5 ms, sixteen of them took a seventh of two cores.
func (r *reporter) run() {
	for range r.news {
		time.Sleep(5 * time.Millisecond)
		r.report()
	}
}

func (r *reporter) report() {
	r.timing.Lock()
	took := r.took
	r.took = nil
	r.timing.Unlock()
	for some := range slices.Chunk(took, 1000) { // a line has less than 64 KB
		r.say("took " + strings.Trim(fmt.Sprint(some), "[]"))
	}
	if n := r.done.Swap(0); n > 0 {
		r.say(fmt.Sprint("n ", n))
	}
}

func (r *reporter) say(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintln(r.out, line)
	r.out.Flush()
}

// note keeps how long a job took to reach its handler. The payload has the time at
// which the job was due to be enqueued; zero is a job of the warm-up.
func (r *reporter) note(payload []byte) error {
	now := time.Now().UnixMicro()
	var sent struct{ At int64 }
	if err := json.Unmarshal(payload, &sent); err != nil {
		return err
	}
	if sent.At > 0 {
		r.timing.Lock()
		r.took = append(r.took, now-sent.At)
		r.timing.Unlock()
	}
	r.did(1)
	return nil
}

// do runs a task that has no transaction, in any system.
func (r *reporter) do(task string, payload []byte) error {
	switch task {
	case "note":
		return r.note(payload)
	case "sleep":
		time.Sleep(time.Millisecond)
	}
	r.did(1)
	return nil
}
