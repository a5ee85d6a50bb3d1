package work

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

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

// kind is the kind of work that jobs are. A worker takes some of them at once.
type kind struct {
	Config
	stop   context.Context
	waiter *Waiter       // of the worker that may take
	look   bool          // the last claim found all that it asked for, or failed; of the same worker
	room   chan struct{} // receives when there may be room for more

	heartbeat worker.Heartbeat[*Job]
	done      completer
	settling  worker.Retry
	extending worker.Trouble
	failing   worker.Failures
	pace      pace
	open      atomic.Int64 // jobs that are not begun, or in a handler

	mu   sync.Mutex
	held map[int64]*Job
}

// How often to say that jobs are in hand: well within their leases, and before
// they count as stalled; and after how long it is worth an entry in the log that
// a handler has begun. What is shorter says all of it when it ends.
const (
	heartbeatEvery = 10 * time.Second
	noteAfter      = time.Second
)

// Run works until stop ends. Then it takes nothing more, gives back what it has
// not begun, and returns when the rest is done. The contexts of handlers come from
// work, so when that ends too, they should return; what they leave undone goes
// back. It returns an error when jobs cannot be taken and time will not change
// that.
func Run(stop, work context.Context, config Config) error {
	config.Log = config.Log.With("tags", config.Tags)
	k := &kind{
		Config: config, stop: stop, look: true, waiter: config.Bell.Join(config.Namespace, config.Tags),
		room: make(chan struct{}, 1), done: completer{wake: make(chan struct{}, 1)}, held: map[int64]*Job{},
		extending: worker.Trouble{Log: config.Log, Message: "cannot extend leases of jobs yet"},
		failing:   worker.Failures{Log: config.Log},
		settling: worker.Retry{
			Outages: true, Each: max(config.LeaseFor/3, time.Second),
			Trouble: &worker.Trouble{Log: config.Log, Message: "cannot record the end of jobs yet"},
		},
	}
	defer k.waiter.Leave()
	k.heartbeat = worker.Heartbeat[*Job]{
		Every: min(config.LeaseFor/3, heartbeatEvery), AtOnce: mostAtOnce, ExtendAll: k.extend, Stuck: k.leaveToExpire,
	}
	if config.Timeout > 0 {
		k.heartbeat.Patience = config.Timeout + config.LeaseFor
	}
	k.heartbeat.Init()
	var completing sync.WaitGroup
	completing.Go(func() { k.complete(work) })
	err := worker.Run(stop, work, k, worker.Config{Workers: config.Concurrency, Log: config.Log, Ends: pg.IsFinal})
	k.done.close()
	completing.Wait()
	return err
}

// batch is some jobs that were taken at once.
type batch struct{ jobs []*Job }

// Room waits until it is time to look for jobs and there is room for some: one for
// each handler that has nothing to do, and where jobs are short, as many as will
// be begun in the next moment. Those are taken in good time, and not one by one.
func (k *kind) Room(stop context.Context) int {
	if !k.look && !k.waiter.Wait(stop) {
		return 0
	}
	for stop.Err() == nil {
		if n := k.roomNow(); n > 0 {
			return n
		}
		select {
		case <-stop.Done():
		case <-k.room:
		}
	}
	return 0
}

func (k *kind) roomNow() int {
	ahead := k.pace.ahead(k.Concurrency, k.BatchSize)
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.Concurrency + ahead - int(k.open.Load())
	n = min(n, k.Concurrency+2*k.BatchSize-len(k.held)) // what is done has to be recorded too
	if n <= ahead/2 {
		return 0
	}
	return min(n, k.Concurrency+k.BatchSize)
}

// madeRoom lets the worker that may take see whether there is room.
func (k *kind) madeRoom() {
	select {
	case k.room <- struct{}{}:
	default:
	}
}

// Take claims jobs.
func (k *kind) Take(work context.Context, n int, _ *batch) (*batch, error) {
	asked := time.Now()
	k.look = true
	claimed, err := pg.ClaimJobs(work, k.Pool, k.Namespace, k.Worker, k.Tags, n, k.LeaseFor)
	if err != nil {
		k.waiter.Found() // others may be luckier
		return nil, err
	}
	if k.look = len(claimed) == n; k.look {
		k.waiter.Found()
	}
	if len(claimed) == 0 {
		return nil, nil
	}
	b := &batch{jobs: make([]*Job, len(claimed))}
	for i := range claimed {
		j := &Job{ClaimedJob: claimed[i], kind: k}
		j.Init(work, asked, k.LeaseFor)
		b.jobs[i] = j
		k.open.Add(1)
		k.mu.Lock()
		earlier := k.held[j.ID]
		k.held[j.ID] = j
		k.mu.Unlock()
		if earlier != nil { // it was reset, or its lease passed, and came back to us
			k.reportLost(earlier, earlier.Settle(func() (bool, error) { return false, pg.ErrLeaseLost }))
		}
		k.heartbeat.Add(j)
	}
	return b, nil
}

// Rest has nothing to do: Room waits for news.
func (k *kind) Rest(stop context.Context) bool { return stop.Err() == nil }

// Runner returns a function that handles jobs side by side, and gives back those that were not
// begun when it is told to stop.
func (k *kind) Runner(w *worker.Worker) func(work context.Context, b *batch) bool {
	return func(work context.Context, b *batch) bool {
		begun := w.SideBySide(k.stop, len(b.jobs), func(i int) {
			j := b.jobs[i]
			k.handle(work, j)
		})
		k.open.Add(int64(begun - len(b.jobs)))
		k.giveBack(work, b.jobs[begun:])
		return false
	}
}

// Finish has nothing to do: jobs are finished one by one.
func (k *kind) Finish(context.Context, *batch) {}

// Lost has nothing to do either.
func (k *kind) Lost(*batch) {}

// Release gives back jobs that were not begun.
func (k *kind) Release(work context.Context, b *batch) {
	k.open.Add(int64(-len(b.jobs)))
	k.giveBack(work, b.jobs)
}

// KeepAlive extends what is in hand until ctx ends.
func (k *kind) KeepAlive(ctx context.Context) { k.heartbeat.Run(ctx) }

// extend extends leases, and finds out what was cancelled, reset or lost.
func (k *kind) extend(ctx context.Context, jobs []*Job) {
	var held []*Job
	for _, j := range jobs {
		running, ending := j.state()
		if running >= noteAfter && !j.noted {
			_, err := pg.StartJob(ctx, k.Pool, j.fence())
			j.noted = err == nil
		}
		if !ending { // its row may be locked by a transaction of its handler
			held = append(held, j)
		}
	}
	if len(held) == 0 {
		return
	}
	asked := time.Now()
	ids, attempts := fences(held)
	kept, err := pg.HeartbeatJobs(ctx, k.Pool, k.Worker, ids, attempts, k.LeaseFor)
	if err != nil {
		k.extending.Report(err)
		for _, j := range held {
			k.heartbeat.Hasten(j, time.Second)
		}
		return
	}
	k.extending.Over()
	still := make(map[int64]bool, len(kept))
	for _, id := range kept {
		still[id] = true
	}
	for _, j := range held {
		if still[j.ID] {
			j.Extended(asked, k.LeaseFor)
		} else {
			j.Gone(pg.ErrLeaseLost)
			k.reportLost(j, context.Cause(j.Context()))
		}
	}
}

func (k *kind) leaveToExpire(j *Job) {
	k.Log.Error("a handler does not return although its time is over: its job is left to expire", "job", j.ID, "attempt", j.Attempt)
}

// reportLost reports, once, that a job is lost, if that is what an error says.
func (k *kind) reportLost(j *Job, err error) {
	if errors.Is(err, pg.ErrLeaseLost) && !j.reported.Swap(true) {
		k.Observe.LeaseLost()
		k.Log.Warn("job lost: it was cancelled, reset or taken by others", "job", j.ID, "attempt", j.Attempt)
	}
}

// forget ends what there is to do with a job.
func (k *kind) forget(j *Job) {
	k.heartbeat.Remove(j)
	k.mu.Lock()
	if k.held[j.ID] == j { // it may have come again
		delete(k.held, j.ID)
	}
	k.mu.Unlock()
	k.madeRoom()
}

// giveBack returns jobs at once, as far as they are ours.
func (k *kind) giveBack(work context.Context, jobs []*Job) {
	if len(jobs) == 0 {
		return
	}
	ids, attempts := fences(jobs)
	all := func(*Job) bool { return true }
	err := k.settle(work, jobs, all, func(ctx context.Context) error {
		_, err := pg.ReleaseJobs(ctx, k.Pool, k.Worker, ids, attempts, "the worker was told to stop")
		return err
	})
	if err != nil {
		k.Log.Warn("cannot give jobs back; they expire", "jobs", len(jobs), "error", err)
	}
	for _, j := range jobs {
		k.forget(j)
	}
}

// settle runs what records the end of jobs, again and again while they may be
// ours. After that, over says which of them are over.
func (k *kind) settle(work context.Context, jobs []*Job, over func(j *Job) bool, record func(ctx context.Context) error) error {
	ctx, cancel := worker.Outlast(work, k.LeaseFor)
	defer cancel()
	claimed := make([]*pg.ClaimedJob, len(jobs))
	for i, j := range jobs {
		claimed[i] = &j.ClaimedJob
	}
	return k.settling.Do(ctx, func(ctx context.Context) error {
		return worker.SettleAll(jobs, func() (func(j *Job) bool, error) { return over, k.Observe.Settle(ctx, claimed, record) })
	})
}

// fences is what tells jobs from what others have.
func fences(jobs []*Job) (ids []int64, attempts []int32) {
	for _, j := range jobs {
		ids = append(ids, j.ID)
		attempts = append(attempts, int32(j.Attempt))
	}
	return ids, attempts
}
