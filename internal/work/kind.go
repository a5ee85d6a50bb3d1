package work

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/waitqueue"
	"github.com/posthorn/posthorn/internal/worker"
)

// Config says which jobs to work on, and how.
type Config struct {
	Pool      *pg.Pool
	Queues    *Queues
	Namespace string
	Worker    string // its name, which no other worker has
	Tags      []string

	Handle       func(ctx context.Context, tx pgx.Tx, jobs []*Job) error
	Batches      bool                 // Handle gets all jobs of a take in one call; otherwise it gets one job
	Transactions *worker.Transactions // Handle gets one, which also completes its jobs; nil: it gets none

	Concurrency int           // calls of Handle at once
	BatchSize   int           // most jobs in one take; without Batches, beyond those that can start at once
	LeaseFor    time.Duration // how long after the end of this process other workers get its jobs
	Timeout     time.Duration // of one call of Handle; 0 for none

	Log     *slog.Logger
	Observe Observer
}

// Observer is notified of jobs, for metrics and traces. Its methods are called from many
// goroutines, and must be quick.
type Observer interface {
	// Handling is called before the handler, which gets the returned context.
	Handling(ctx context.Context, jobs []*pg.ClaimedJob) context.Context
	// Handled is called after the handler, with the context of Handling.
	Handled(ctx context.Context, jobs []*pg.ClaimedJob, took time.Duration, err error)
	// Settle calls a function that records the ends of jobs.
	Settle(ctx context.Context, jobs []*pg.ClaimedJob, settle func(ctx context.Context) error) error
	// Failed is called when a failure was recorded; dead means that it was the last one.
	Failed(dead bool)
	// LeaseLost is called when a job was taken away while this process had it.
	LeaseLost()
}

// heartbeatEvery is the longest interval of heartbeats, so that a job in progress does not
// count as stalled. It is a variable for tests, which set it before they begin.
var heartbeatEvery = 10 * time.Second

const (
	// noteAfter is how long a handler runs until its start is recorded. The end of a
	// shorter job records its start too.
	noteAfter = time.Second
	// checkEvery is the interval in which jobs in progress are compared with the database.
	checkEvery = 500 * time.Millisecond
	// takesAtOnce is the number of takes in progress: while one waits for the disk, the
	// other one claims.
	takesAtOnce = 2
)

// kind is the kind of work that jobs are.
type kind struct {
	Config
	stop     context.Context
	waiter   *waitqueue.Waiter[string]
	awaiting chan struct{} // held by the goroutine that waits with the waiter
	more     atomic.Bool   // the last claim returned as many jobs as it asked for, or failed
	hasRoom  chan struct{} // receives when there is room for more jobs

	heartbeat worker.Heartbeat[*Job]
	done      completer
	settling  worker.Retry
	extending worker.Trouble
	opening   worker.Trouble
	failing   worker.Failures
	duration  averageDuration

	mu   sync.Mutex
	open int            // jobs that are asked for, not begun, or in a handler
	held map[int64]*Job // jobs whose end is not recorded
}

// Run works until stop ends. Then it takes no more jobs, gives back those that have not
// begun, and returns when the others are done. The contexts of handlers are derived from
// work, so handlers should return when it ends; jobs that are not done then go back. Run
// returns an error if jobs cannot be taken and a retry cannot help.
func Run(stop, work context.Context, config Config) error {
	config.Log = config.Log.With("tags", config.Tags)
	k := &kind{
		Config: config, stop: stop, waiter: config.Queues.Join(QueueName(config.Namespace, config.Tags)),
		awaiting: make(chan struct{}, 1), hasRoom: make(chan struct{}, 1), held: map[int64]*Job{},
		done:      completer{wake: make(chan struct{}, 1)},
		extending: worker.Trouble{Log: config.Log, Message: "cannot extend leases of jobs yet"},
		opening:   worker.Trouble{Log: config.Log, Message: "cannot run a transaction of jobs yet"},
		failing:   worker.Failures{Log: config.Log},
		settling: worker.Retry{
			Outages: true, Each: max(config.LeaseFor/3, time.Second),
			Trouble: &worker.Trouble{Log: config.Log, Message: "cannot record the end of jobs yet"},
		},
	}
	defer k.waiter.Leave()
	k.more.Store(true)
	k.heartbeat = worker.Heartbeat[*Job]{
		Every: min(config.LeaseFor/3, heartbeatEvery), AtOnce: maxBatch, ExtendAll: k.extend, Stuck: k.leaveToExpire,
	}
	if config.Timeout > 0 {
		k.heartbeat.Patience = config.Timeout + config.LeaseFor
	}
	k.heartbeat.Init()
	var completing sync.WaitGroup
	completing.Go(func() { k.complete(work) })
	err := worker.Run(stop, work, k, worker.Config{
		Workers: config.Concurrency, Takes: takesAtOnce, Log: config.Log, Ends: pg.IsFinal,
	})
	k.done.close()
	completing.Wait()
	return err
}

// batch is the jobs of one take.
type batch struct{ jobs []*Job }

// Room waits until there is room for jobs and there may be some, and reserves room: for a
// batch or, without batches, one job for each handler that is idle and, if jobs are short,
// those that will start in the next moment. It waits for room first: a take that waited
// for room after it had learned of jobs would claim even if another take has meanwhile
// found that there are none, and two takes would make each other claim for ever.
func (k *kind) Room(stop context.Context) int {
	for k.awaitRoom(stop) && k.awaitJobs(stop) {
		if n := k.reserve(); n > 0 {
			return n
		}
		k.waiter.Pass() // another take has reserved the room
	}
	return 0
}

// awaitRoom waits until there is room for jobs, without reserving it.
func (k *kind) awaitRoom(stop context.Context) bool {
	for stop.Err() == nil {
		k.mu.Lock()
		n := k.room()
		k.mu.Unlock()
		if n > 0 {
			return true
		}
		select {
		case <-stop.Done():
		case <-k.hasRoom:
		}
	}
	return false
}

// awaitJobs waits for news, unless there are more jobs. One goroutine waits at a time.
func (k *kind) awaitJobs(stop context.Context) bool {
	if k.more.Load() {
		return true
	}
	select {
	case k.awaiting <- struct{}{}:
	case <-stop.Done():
		return false
	}
	defer func() { <-k.awaiting }()
	return k.more.Load() || k.waiter.Wait(stop)
}

func (k *kind) reserve() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	n := k.room()
	k.open += n
	return n
}

// room returns the number of jobs to take next. The caller holds the lock.
func (k *kind) room() int {
	if k.Batches { // the worker that asks is idle, and takes a whole batch, unless too many ends of jobs are still to be recorded
		n := min(k.BatchSize, (k.Concurrency+2*takesAtOnce)*k.BatchSize-len(k.held))
		if n <= k.BatchSize/2 {
			return 0
		}
		return n
	}
	ahead := k.duration.jobsAhead(k.Concurrency, takesAtOnce*k.BatchSize)
	n := k.Concurrency + ahead - k.open
	n = min(n, k.Concurrency+2*takesAtOnce*k.BatchSize-len(k.held)) // jobs that are done have to be recorded too
	if n <= min(ahead, k.BatchSize)/2 {
		return 0
	}
	return min(n, k.Concurrency+k.BatchSize)
}

// freeRoom notes that n jobs are not open any more.
func (k *kind) freeRoom(n int) {
	k.mu.Lock()
	k.open -= n
	k.unlockRoom()
}

// unlockRoom unlocks, and wakes a take that waits for room if there is enough.
func (k *kind) unlockRoom() {
	enough := k.room() > 0
	k.mu.Unlock()
	if !enough {
		return
	}
	select {
	case k.hasRoom <- struct{}{}:
	default:
	}
}

// Take claims jobs, and completes those that are done.
func (k *kind) Take(work context.Context, n int, _ *batch, _ bool) (*batch, error) {
	asked := time.Now()
	taken := k.takeAndComplete(work, n)
	more := taken.ClaimError != nil || len(taken.Jobs) == n
	k.more.Store(more) // before there is room, for which the other take waits
	k.freeRoom(n - len(taken.Jobs))
	if more {
		k.waiter.Found() // after an error, another waiter may succeed
	} else {
		k.waiter.Done() // the handlers of these jobs may take long
	}
	if taken.ClaimError != nil {
		return nil, taken.ClaimError
	}
	if len(taken.Jobs) == 0 {
		return nil, nil
	}
	return &batch{jobs: k.hold(work, asked, taken.Jobs)}, nil
}

// hold starts to keep jobs that were claimed.
func (k *kind) hold(work context.Context, asked time.Time, claimed []pg.ClaimedJob) []*Job {
	jobs := make([]*Job, len(claimed))
	var earlier []*Job // attempts of the same jobs: they were reset, or their leases have expired
	k.mu.Lock()
	for i := range claimed {
		j := &Job{ClaimedJob: claimed[i], kind: k}
		j.Init(work, asked, k.LeaseFor)
		if other := k.held[j.ID]; other != nil {
			earlier = append(earlier, other)
		}
		k.held[j.ID] = j
		jobs[i] = j
	}
	k.mu.Unlock()
	for _, j := range earlier {
		k.reportLost(j, j.Settle(func() (bool, error) { return false, pg.ErrLeaseLost }))
	}
	k.heartbeat.Add(jobs...)
	return jobs
}

// Rest waits for nothing: Room waits for news.
func (k *kind) Rest() (time.Duration, <-chan struct{}) { return 0, nil }

// Runner returns a function that handles the jobs of a batch: together, if the handler
// takes batches and does not fail, otherwise side by side. After stop it gives back those
// that have not begun.
func (k *kind) Runner(w *worker.Worker) func(work context.Context, b *batch) bool {
	return func(work context.Context, b *batch) bool {
		if k.Batches && k.handleTogether(work, w, b.jobs) {
			return false
		}
		if k.Batches {
			noteWaiting(b.jobs) // the batch may have taken all of the time
		}
		begun := w.InLanes(k.stop, len(b.jobs), func() worker.Lane {
			t := k.transactions()
			return worker.Lane{
				Run: func(i int, more bool) {
					k.handle(work, t.before(more), b.jobs[i:i+1])
					if k.Batches {
						noteWaiting(b.jobs[i+1:])
					}
				},
				End: func() { t.end(work) },
			}
		})
		k.Release(work, &batch{jobs: b.jobs[begun:]})
		return false
	}
}

// Finish has nothing to do: jobs are finished one by one.
func (k *kind) Finish(context.Context, *batch) {}

// Lost has nothing to do either.
func (k *kind) Lost(*batch) {}

// Release gives back jobs that have not begun.
func (k *kind) Release(work context.Context, b *batch) {
	k.freeRoom(len(b.jobs))
	k.giveBack(work, b.jobs, toldToStop)
}

// KeepAlive extends leases until ctx ends. Between heartbeats it checks the jobs in progress.
func (k *kind) KeepAlive(ctx context.Context) {
	var checking sync.WaitGroup
	checking.Go(func() {
		for k.heartbeat.Every > checkEvery && worker.Pause(ctx, checkEvery) {
			k.check(ctx)
		}
	})
	k.heartbeat.Run(ctx)
	checking.Wait()
}

// check compares the jobs in progress with the database, and ends the contexts of jobs
// that were cancelled, reset or taken over. Short jobs end before they are checked.
func (k *kind) check(ctx context.Context) {
	var long []*Job
	for _, j := range k.heartbeat.All() {
		if running, ending := j.state(); running >= checkEvery && !ending {
			long = append(long, j)
		}
	}
	for len(long) > 0 && ctx.Err() == nil {
		n := min(len(long), maxBatch)
		k.compare(ctx, long[:n])
		long = long[n:]
	}
}

// compare asks the database which jobs this worker still has, and ends the contexts of the
// others.
func (k *kind) compare(ctx context.Context, jobs []*Job) {
	worker.Unsettled(jobs, func(jobs []*Job) {
		ids, attempts := fences(jobs)
		if held, err := pg.HeldJobs(ctx, k.Pool, k.Worker, ids, attempts); err == nil { // else heartbeats report it
			k.endLost(jobs, held)
		}
	})
}

// endLost ends the contexts of those jobs that this worker does not hold any more. A job
// that a transaction of its handler has ended since the question was asked is not lost.
func (k *kind) endLost(jobs []*Job, heldIDs []int64) {
	held := make(map[int64]bool, len(heldIDs))
	for _, id := range heldIDs {
		held[id] = true
	}
	for _, j := range jobs {
		if _, ending := j.state(); !held[j.ID] && !ending {
			j.Gone(pg.ErrLeaseLost)
			k.reportLost(j, context.Cause(j.Context()))
		}
	}
}

// extend extends leases, and finds jobs that were cancelled, reset or taken over.
func (k *kind) extend(ctx context.Context, jobs []*Job) {
	var kept []*Job
	for _, j := range jobs {
		running, ending := j.state()
		if ending { // its row may be locked by a transaction of its handler
			continue
		}
		if running >= noteAfter && !j.noted && !k.Batches {
			_, err := pg.StartJob(ctx, k.Pool, j.fence())
			j.noted = err == nil
		}
		kept = append(kept, j)
	}
	if len(kept) == 0 {
		return
	}
	asked := time.Now()
	ids, attempts := fences(kept)
	held, err := pg.HeartbeatJobs(ctx, k.Pool, k.Worker, ids, attempts, k.LeaseFor)
	if err != nil {
		k.extending.Report(err)
		for _, j := range kept {
			k.heartbeat.Hasten(j, time.Second)
		}
		return
	}
	k.extending.Over()
	for _, j := range kept {
		j.Extended(asked, k.LeaseFor) // of a lost one too, whose context ends below
	}
	k.endLost(kept, held)
}

func (k *kind) leaveToExpire(j *Job) {
	k.Log.Error("a handler does not return although its time is over: its job is left to expire", "job", j.ID, "attempt", j.Attempt)
}

// reportLost reports once that a job is lost, if the error says so.
func (k *kind) reportLost(j *Job, err error) {
	if errors.Is(err, pg.ErrLeaseLost) && !j.reported.Swap(true) {
		k.Observe.LeaseLost()
		k.Log.Warn("job lost: it was cancelled, reset or taken by another worker", "job", j.ID, "attempt", j.Attempt)
	}
}

// forget ends the keeping of jobs.
func (k *kind) forget(jobs ...*Job) {
	k.heartbeat.Remove(jobs...)
	k.mu.Lock()
	for _, j := range jobs {
		if k.held[j.ID] == j { // it may have been claimed again
			delete(k.held, j.ID)
		}
	}
	k.unlockRoom()
}

// toldToStop is the reason of jobs that go back because Run was told to stop.
const toldToStop = "the worker was told to stop"

// giveBack returns jobs to the queue at once, those that this worker still has.
func (k *kind) giveBack(work context.Context, jobs []*Job, reason string) {
	if len(jobs) == 0 {
		return
	}
	ids, attempts := fences(jobs)
	all := func(*Job) bool { return true }
	err := k.settle(work, jobs, all, func(ctx context.Context) error {
		_, err := pg.ReleaseJobs(ctx, k.Pool, k.Worker, ids, attempts, reason)
		return err
	})
	if err != nil {
		k.Log.Warn("cannot give jobs back; their leases expire", "jobs", len(jobs), "error", err)
	}
	k.forget(jobs...)
}

// settle calls a function that records the ends of jobs, and repeats it after temporary
// errors while the jobs may be held. Then isOver reports which of the jobs have ended.
func (k *kind) settle(work context.Context, jobs []*Job, isOver func(j *Job) bool, record func(ctx context.Context) error) error {
	ctx, cancel := worker.Outlast(work, k.LeaseFor)
	defer cancel()
	return k.settling.Do(ctx, func(ctx context.Context) error { return k.settleOnce(ctx, jobs, isOver, record) })
}

func (k *kind) settleOnce(ctx context.Context, jobs []*Job, isOver func(j *Job) bool, record func(ctx context.Context) error) error {
	claimed := claimedOf(jobs)
	return worker.SettleAll(jobs, func() (func(j *Job) bool, error) { return isOver, k.Observe.Settle(ctx, claimed, record) })
}

func claimedOf(jobs []*Job) []*pg.ClaimedJob {
	claimed := make([]*pg.ClaimedJob, len(jobs))
	for i, j := range jobs {
		claimed[i] = &j.ClaimedJob
	}
	return claimed
}

// fences returns the ids and attempts of jobs, by which the database refuses late reports.
func fences(jobs []*Job) (ids []int64, attempts []int32) {
	for _, j := range jobs {
		ids = append(ids, j.ID)
		attempts = append(attempts, int32(j.Attempt))
	}
	return ids, attempts
}
