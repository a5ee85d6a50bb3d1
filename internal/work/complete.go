package work

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/posthorn/posthorn/internal/pg"
)

// completer collects what is done. While one call is under way, the next one's
// jobs gather, so the busier it is, the larger the calls.
type completer struct {
	wake chan struct{}

	mu     sync.Mutex
	jobs   []*Job
	closed bool
}

func (c *completer) add(j *Job) {
	c.mu.Lock()
	c.jobs = append(c.jobs, j)
	c.mu.Unlock()
	c.poke()
}

// close lets complete return when nothing is left.
func (c *completer) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.poke()
}

func (c *completer) poke() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

const mostAtOnce = 1000

// next is what is to be completed together.
func (c *completer) next() (jobs []*Job, closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(c.jobs), mostAtOnce)
	jobs = c.jobs[:n:n]
	c.jobs = c.jobs[n:]
	return jobs, c.closed
}

// complete records what is done, until the completer is closed.
func (w *engine) complete(work context.Context) {
	for {
		jobs, closed := w.done.next()
		switch {
		case len(jobs) > 0:
			w.completeMany(work, jobs)
		case closed:
			return
		default:
			<-w.done.wake
		}
	}
}

// completeMany records the end of jobs, each fenced by its attempt. Those that
// were not ours are asked for one by one: a call whose answer never came may have
// recorded them before.
func (w *engine) completeMany(work context.Context, jobs []*Job) {
	ids, attempts := fences(jobs)
	took := make([]int64, len(jobs))
	for i, j := range jobs {
		took[i] = j.took.Milliseconds()
	}
	recorded := map[int64]bool{}
	err := w.insist(work, "cannot complete jobs yet", jobs, func(ctx context.Context) error {
		done, err := pg.CompleteJobs(ctx, w.Pool, w.Worker, ids, attempts, took)
		for _, id := range done {
			recorded[id] = true
		}
		return err
	})
	for _, j := range jobs {
		switch {
		case err != nil:
			w.settled(j, err)
		case recorded[j.ID]:
			w.forget(j)
		default:
			w.completeOne(work, j)
		}
	}
}

// completeOne records the end of a job, with its result. A result that cannot be
// kept fails the job for good: to do it again would end the same way.
func (w *engine) completeOne(work context.Context, j *Job) {
	took := j.took.Milliseconds()
	err := w.insist(work, "cannot complete a job yet", []*Job{j}, func(ctx context.Context) error {
		_, err := pg.CompleteJob(ctx, w.Pool, j.held(), pg.JobDone{ExecutionTimeMS: &took, Result: j.answer()})
		return err
	})
	if errors.Is(err, pg.ErrInvalid) && j.answer() != nil {
		w.fail(work, j, pg.JobFailure{Error: fmt.Sprintf("it was done, but its result cannot be kept: %v", err), Permanent: true})
		return
	}
	w.settled(j, err)
}
