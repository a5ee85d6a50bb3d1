package work

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// completer collects jobs that have succeeded. The next take completes them; those that no
// take has fetched for a moment are completed by themselves.
type completer struct {
	wake chan struct{}

	mu     sync.Mutex
	jobs   []*Job
	again  []*Job // a take tried to complete them: the result is unknown, or they were not held
	closed bool
}

// add adds jobs that have succeeded.
func (c *completer) add(jobs ...*Job) {
	c.mu.Lock()
	c.jobs = append(c.jobs, jobs...)
	c.mu.Unlock()
	c.signal()
}

// retry adds jobs that a take has not completed.
func (c *completer) retry(jobs []*Job) {
	if len(jobs) == 0 {
		return
	}
	c.mu.Lock()
	c.again = append(c.again, jobs...)
	c.mu.Unlock()
	c.signal()
}

// close lets complete return when no jobs are left.
func (c *completer) close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.signal()
}

func (c *completer) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// maxBatch is the largest number of jobs in one statement.
const maxBatch = 1000

// next removes up to maxBatch jobs from a list of the completer.
func (c *completer) next(list *[]*Job) []*Job {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := min(len(*list), maxBatch)
	jobs := (*list)[:n:n]
	*list = (*list)[n:]
	return jobs
}

// state reports whether there are jobs, and whether the completer is closed.
func (c *completer) state() (fresh, again, closed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.jobs) > 0, len(c.again) > 0, c.closed
}

// takeSoon is how long jobs wait for a take that completes them.
const takeSoon = 2 * time.Millisecond

// complete completes jobs that no take completes, until the completer is closed.
func (k *kind) complete(work context.Context) {
	for {
		fresh, again, closed := k.done.state()
		switch {
		case again:
			k.completeMany(work, k.done.next(&k.done.again))
		case fresh:
			if !closed {
				time.Sleep(takeSoon)
			}
			k.completeMany(work, k.done.next(&k.done.jobs))
		case closed:
			return
		default:
			<-k.done.wake
		}
	}
}

// takeAndComplete claims n jobs and completes jobs that are done. It completes them once:
// the completer repeats that where it is necessary.
func (k *kind) takeAndComplete(work context.Context, n int) (taken pg.TakenJobs) {
	take := pg.JobTake{Namespace: k.Namespace, Worker: k.Worker, Tags: k.Tags, MaxJobs: n, LeaseFor: k.LeaseFor}
	jobs := k.done.next(&k.done.jobs)
	if len(jobs) == 0 {
		return k.Pool.TakeJobs(work, take)
	}
	take.Done = doneJobs(jobs)
	recorded := map[int64]bool{}
	err := k.settleOnce(work, jobs, func(j *Job) bool { return recorded[j.ID] }, func(ctx context.Context) error {
		taken = k.Pool.TakeJobs(ctx, take)
		note(recorded, taken.Completed)
		return taken.CompleteError
	})
	if errors.Is(err, pg.ErrUnconfirmed) {
		k.settling.Trouble.Unconfirmed(err)
	}
	k.done.retry(k.forgetEnded(jobs, recorded, taken.CompleteError))
	return taken
}

func doneJobs(jobs []*Job) pg.DoneJobs {
	ids, attempts := fences(jobs)
	took := make([]int64, len(jobs))
	for i, j := range jobs {
		took[i] = j.took.Milliseconds()
	}
	return pg.DoneJobs{IDs: ids, Attempts: attempts, ExecutionTimesMS: took}
}

func note(recorded map[int64]bool, ids []int64) {
	for _, id := range ids {
		recorded[id] = true
	}
}

// forgetEnded forgets the jobs that have ended, and returns the others. Those that were not
// held, although the call succeeded, have ended if a transaction of their handlers has
// completed them.
func (k *kind) forgetEnded(jobs []*Job, recorded map[int64]bool, err error) (others []*Job) {
	var ended []*Job
	for _, j := range jobs {
		if _, ending := j.state(); recorded[j.ID] || ending && err == nil {
			ended = append(ended, j)
		} else {
			others = append(others, j)
		}
	}
	k.forget(ended...)
	return others
}

// completeMany records the end of jobs. Jobs that were not held are completed one by one:
// a call whose answer did not arrive may have recorded them before.
func (k *kind) completeMany(work context.Context, jobs []*Job) {
	if len(jobs) == 0 { // a take was quicker
		return
	}
	done := doneJobs(jobs)
	recorded := map[int64]bool{}
	err := k.settle(work, jobs, func(j *Job) bool { return recorded[j.ID] }, func(ctx context.Context) error {
		ids, err := pg.CompleteJobs(ctx, k.Pool, k.Worker, done)
		note(recorded, ids)
		return err
	})
	for _, j := range k.forgetEnded(jobs, recorded, err) {
		if err != nil {
			k.settled(j, err)
		} else {
			k.completeOne(work, j)
		}
	}
}

// completeOne records the end of a job, with its result. A result that cannot be saved
// fails the job for good: another attempt would end in the same way.
func (k *kind) completeOne(work context.Context, j *Job) {
	took := j.took.Milliseconds()
	err := k.settleOne(work, j, func(ctx context.Context) error {
		_, err := pg.CompleteJob(ctx, k.Pool, j.fence(), pg.JobDone{ExecutionTimeMS: &took, Result: j.answer()})
		return err
	})
	if errors.Is(err, pg.ErrInvalid) && j.answer() != nil {
		err = fmt.Errorf("it was done, but its result cannot be saved: %w", err)
		k.recordFailure(work, j, pg.JobFailure{Error: err.Error(), Permanent: true}, err)
		return
	}
	k.settled(j, err)
}
