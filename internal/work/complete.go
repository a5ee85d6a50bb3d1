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
func (k *kind) complete(work context.Context) {
	for {
		jobs, closed := k.done.next()
		switch {
		case len(jobs) > 0:
			k.completeMany(work, jobs)
		case closed:
			return
		default:
			<-k.done.wake
		}
	}
}

// completeMany records the end of jobs, each fenced by its attempt. Those that
// were not ours are asked for one by one: a call whose answer never came may have
// recorded them before.
func (k *kind) completeMany(work context.Context, jobs []*Job) {
	ids, attempts := fences(jobs)
	took := make([]int64, len(jobs))
	for i, j := range jobs {
		took[i] = j.took.Milliseconds()
	}
	recorded := map[int64]bool{}
	isRecorded := func(j *Job) bool { return recorded[j.ID] }
	err := k.settle(work, jobs, isRecorded, func(ctx context.Context) error {
		done, err := pg.CompleteJobs(ctx, k.Pool, k.Worker, ids, attempts, took)
		for _, id := range done {
			recorded[id] = true
		}
		return err
	})
	for _, j := range jobs {
		switch {
		case err != nil:
			k.settled(j, err)
		case recorded[j.ID]:
			k.forget(j)
		default:
			k.completeOne(work, j)
		}
	}
}

// completeOne records the end of a job, with its result. A result that cannot be
// kept fails the job for good: to do it again would end the same way.
func (k *kind) completeOne(work context.Context, j *Job) {
	took := j.took.Milliseconds()
	err := k.settleOne(work, j, func(ctx context.Context) error {
		_, err := pg.CompleteJob(ctx, k.Pool, j.fence(), pg.JobDone{ExecutionTimeMS: &took, Result: j.answer()})
		return err
	})
	if errors.Is(err, pg.ErrInvalid) && j.answer() != nil {
		err = fmt.Errorf("it was done, but its result cannot be kept: %w", err)
		k.recordFailure(work, j, pg.JobFailure{Error: err.Error(), Permanent: true}, err)
		return
	}
	k.settled(j, err)
}
