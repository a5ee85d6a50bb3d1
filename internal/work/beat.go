package work

import (
	"context"
	"slices"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// How often to say that jobs are in hand: well within their leases, and before
// they count as stalled; and after how long it is worth an entry in the log that
// a handler has begun. What is shorter says all of it when it ends.
const (
	beatEvery = 10 * time.Second
	noteAfter = time.Second
)

// beat keeps what is in hand alive, and finds out what is not ours any more.
func (w *engine) beat(ctx context.Context) {
	every := min(w.LeaseFor/3, beatEvery)
	ticker := time.NewTicker(min(every, noteAfter))
	defer ticker.Stop()
	for last := time.Now(); ; {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		jobs := w.inHand()
		w.noteStarts(ctx, jobs)
		if time.Since(last) < every {
			continue
		}
		last = time.Now()
		for batch := range slices.Chunk(jobs, mostAtOnce) {
			w.keep(ctx, batch)
		}
	}
}

// inHand is all that a heartbeat is for. A handler that does not return although
// its time is over loses its job, since it would keep it from everyone.
func (w *engine) inHand() []*Job {
	w.mu.Lock()
	defer w.mu.Unlock()
	var jobs []*Job
	for _, j := range w.held {
		if w.Timeout == 0 || j.runsFor() <= w.Timeout+w.LeaseFor {
			jobs = append(jobs, j)
		}
	}
	return jobs
}

func (w *engine) noteStarts(ctx context.Context, jobs []*Job) {
	for _, j := range jobs {
		if j.noted || j.runsFor() < noteAfter { // only this goroutine has to do with noted
			continue
		}
		if _, err := pg.StartJob(ctx, w.Pool, j.held()); err == nil {
			j.noted = true
		}
	}
}

func (w *engine) keep(ctx context.Context, jobs []*Job) {
	ctx, cancel := context.WithTimeout(ctx, max(w.LeaseFor/3, time.Second))
	defer cancel()
	ids, attempts := fences(jobs)
	kept, err := pg.HeartbeatJobs(ctx, w.Pool, w.Worker, ids, attempts, w.LeaseFor)
	if err != nil {
		if ctx.Err() == nil {
			w.Log.Warn("cannot extend leases of jobs yet", "jobs", len(jobs), "error", err)
		}
		return
	}
	still := make(map[int64]bool, len(kept))
	for _, id := range kept {
		still[id] = true
	}
	for _, j := range jobs {
		if !still[j.ID] {
			w.lose(j) // unless its end is being recorded, which may have come in between
		}
	}
}
