package work

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// Config says which jobs to work off, and how.
type Config struct {
	Pool      *pg.Pool
	Bell      *Bell
	Namespace string
	Worker    string // its name, which nobody else has
	Tags      []string
	Handle    func(ctx context.Context, j *Job) error

	Concurrency int           // jobs that are handled at once
	BatchSize   int           // jobs that are taken at once, where they are short
	LeaseFor    time.Duration // how long after the end of this process others get its jobs
	Timeout     time.Duration // of one call of Handle; 0 for none

	Log     *slog.Logger
	Observe Observer
}

// Observer hears of what happens. Its methods are called from many goroutines,
// and must be quick.
type Observer interface {
	// Handling: a job is about to be handled, in the context that is returned.
	Handling(ctx context.Context, j *pg.ClaimedJob) context.Context
	// Handled: that is over. The context is what Handling returned.
	Handled(ctx context.Context, j *pg.ClaimedJob, took time.Duration, err error)
	// Settle runs what records the end of jobs.
	Settle(ctx context.Context, jobs []*pg.ClaimedJob, settle func(ctx context.Context) error) error
	// Failed: a failure was recorded; dead says that it was the last.
	Failed(j *pg.ClaimedJob, dead bool)
	// LeaseLost: a job was taken away while it was in hand.
	LeaseLost()
}

// engine works off jobs.
type engine struct {
	Config
	queue   chan *Job     // taken, and not begun
	changed chan struct{} // receives when there may be room for more
	done    completer
	pace    pace

	open atomic.Int64 // jobs that are not begun, or in a handler

	mu   sync.Mutex
	held map[int64]*Job
}

// Run works until stop ends. Then it takes nothing more, gives back what it has
// not begun, and returns when the rest is done. The contexts of handlers come from
// work, so when that ends too, they should return; what they leave undone goes
// back. It returns an error when jobs cannot be taken and time will not change
// that.
func Run(stop, work context.Context, config Config) error {
	w := &engine{
		Config:  config,
		queue:   make(chan *Job, config.Concurrency+config.BatchSize),
		changed: make(chan struct{}, 1),
		held:    map[int64]*Job{},
	}
	w.done.wake = make(chan struct{}, 1)
	beating, still := context.WithCancel(context.WithoutCancel(work))
	var heart, completing, handlers sync.WaitGroup
	heart.Go(func() { w.beat(beating) })
	completing.Go(func() { w.complete(work) })
	for range config.Concurrency {
		handlers.Go(func() {
			for j := range w.queue {
				w.handle(work, j)
			}
		})
	}
	err := w.claim(stop, work)
	w.giveBackQueue(work)
	close(w.queue)
	handlers.Wait()
	w.done.close()
	completing.Wait()
	still()
	heart.Wait()
	return err
}

// claim takes jobs until stop ends.
func (w *engine) claim(stop, work context.Context) error {
	waiter := w.Bell.Join(w.Namespace, w.Tags)
	defer waiter.Leave()
	for complained := false; ; {
		n := w.awaitRoom(stop)
		if n == 0 {
			return nil
		}
		jobs, err := pg.ClaimJobs(work, w.Pool, w.Namespace, w.Worker, w.Tags, n, w.LeaseFor)
		switch {
		case err == nil:
			complained = false
			w.take(work, jobs)
			if len(jobs) == n {
				waiter.Found()
			} else if !waiter.Wait(stop) {
				return nil
			}
		case collided(err):
		case rejected(err) || code(err) == insufficientPrivilege:
			return err
		default:
			waiter.Found() // others may be luckier
			if !complained {
				w.Log.Warn("cannot take jobs yet", "tags", w.Tags, "error", err)
			}
			complained = true
			if !worker.Pause(stop, trouble) {
				return nil
			}
		}
	}
}

// awaitRoom waits until there is room for jobs, and says for how many: 0 when
// stop has ended.
func (w *engine) awaitRoom(stop context.Context) int {
	for {
		if stop.Err() != nil {
			return 0
		}
		if n := w.room(); n > 0 {
			return n
		}
		select {
		case <-stop.Done():
			return 0
		case <-w.changed:
		}
	}
}

// room is how many jobs to take: one for each handler that has nothing to do, and
// where jobs are short, as many as will be begun in the next moment. Those are
// taken in good time, and not one by one.
func (w *engine) room() int {
	ahead := w.pace.ahead(w.Concurrency, w.BatchSize)
	w.mu.Lock()
	defer w.mu.Unlock()
	n := w.Concurrency + ahead - int(w.open.Load())
	n = min(n, w.Concurrency+2*w.BatchSize-len(w.held)) // what is done has to be recorded too
	if n <= ahead/2 {
		return 0
	}
	return min(n, cap(w.queue))
}

func (w *engine) take(work context.Context, jobs []pg.ClaimedJob) {
	for i := range jobs {
		j := newJob(work, w, jobs[i])
		w.mu.Lock()
		earlier := w.held[j.ID]
		w.held[j.ID] = j
		w.mu.Unlock()
		if earlier != nil { // it was reset, or its lease passed, and came back to us
			w.lose(earlier)
		}
		w.open.Add(1)
		w.queue <- j
	}
}

// forget ends what there is to do with a job.
func (w *engine) forget(j *Job) {
	j.end(nil)
	w.mu.Lock()
	if w.held[j.ID] == j { // it may have come again
		delete(w.held, j.ID)
	}
	w.mu.Unlock()
	w.look()
}

// look lets the claimer see whether there is room.
func (w *engine) look() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

// giveBackQueue returns what was not begun.
func (w *engine) giveBackQueue(work context.Context) {
	var back []*Job
	for {
		select {
		case j := <-w.queue:
			if j.move(waiting, reporting) {
				back = append(back, j)
			} else {
				w.forget(j)
			}
			continue
		default:
		}
		break
	}
	w.giveBack(work, back)
}

// giveBack returns jobs at once, as far as they are ours.
func (w *engine) giveBack(work context.Context, jobs []*Job) {
	if len(jobs) == 0 {
		return
	}
	ids, attempts := fences(jobs)
	err := w.insist(work, "cannot give jobs back yet", jobs, func(ctx context.Context) error {
		_, err := pg.ReleaseJobs(ctx, w.Pool, w.Worker, ids, attempts, "the worker was told to stop")
		return err
	})
	if err != nil {
		w.Log.Warn("cannot give jobs back; they expire", "jobs", len(jobs), "error", err)
	}
	for _, j := range jobs {
		w.forget(j)
	}
}

// fences is what tells jobs from what others have.
func fences(jobs []*Job) (ids []int64, attempts []int32) {
	for _, j := range jobs {
		ids = append(ids, j.ID)
		attempts = append(attempts, int32(j.Attempt))
	}
	return ids, attempts
}

// insist says what is to be recorded of jobs, again and again while they may be
// ours.
func (w *engine) insist(work context.Context, complaint string, jobs []*Job, say func(ctx context.Context) error) error {
	ctx, cancel := worker.Outlast(work, w.LeaseFor)
	defer cancel()
	claimed := make([]*pg.ClaimedJob, len(jobs))
	for i, j := range jobs {
		claimed[i] = &j.ClaimedJob
	}
	for {
		err := w.Observe.Settle(ctx, claimed, say)
		switch {
		case err == nil || errors.Is(err, pg.ErrLeaseLost) || rejected(err):
			return err
		case collided(err):
			continue
		}
		w.Log.Warn(complaint, "jobs", len(jobs), "error", err)
		if !worker.Pause(ctx, trouble) || work.Err() != nil {
			return err
		}
	}
}

// rejected tells what time will not change.
func rejected(err error) bool {
	return errors.Is(err, pg.ErrInvalid) || errors.Is(err, pg.ErrRefused) || errors.Is(err, pg.ErrNotFound)
}

// collided tells that a transaction failed only because of another.
func collided(err error) bool {
	return code(err) == serializationFailure || code(err) == deadlock
}

// Errors of Postgres that mean something here.
const (
	serializationFailure  = "40001"
	deadlock              = "40P01"
	insufficientPrivilege = "42501"
)

func code(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// pace is how long jobs take.
type pace struct {
	mu      sync.Mutex
	average time.Duration
}

func (p *pace) took(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.average == 0 {
		p.average = d
	}
	p.average = max(1, (7*p.average+d)/8)
}

// moment is how far ahead jobs are taken: far enough that a claim is back in
// time, near enough that others get their part and little is repeated.
const moment = 100 * time.Millisecond

// ahead is how many jobs will be begun in the next moment.
func (p *pace) ahead(concurrency, most int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.average == 0 || p.average >= moment {
		return 0
	}
	return int(min(int64(most), int64(concurrency)*int64(moment/p.average)))
}
