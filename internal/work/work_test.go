package work_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/internal/work"
)

// enqueue enqueues in a transaction of its own.
func (w *world) enqueue(jobs ...posthorn.NewJob) []int64 {
	w.T.Helper()
	ids, err := w.Enqueue(w.T.Context(), w.Pool(), jobs...)
	if err != nil {
		w.T.Fatal(err)
	}
	return ids
}

// status waits until a job has a status.
func (w *world) status(id int64, want string) admin.JobStatus {
	w.T.Helper()
	var job admin.JobStatus
	await.True(w.T, fmt.Sprintf("job %d is %s", id, want), func() bool {
		var err error
		if job, err = w.Admin().Job(w.T.Context(), id); err != nil {
			w.T.Fatal(err)
		}
		return job.Status == want
	})
	return job
}

// story is what the log tells of a job.
func (w *world) story(id int64) string {
	w.T.Helper()
	entries, err := w.Admin().JobLog(w.T.Context(), id)
	if err != nil {
		w.T.Fatal(err)
	}
	var actions []string
	for _, e := range entries {
		actions = append(actions, e.Action)
	}
	return strings.Join(actions, " ")
}

var mail = []string{"mail"}

func TestWorkDoesJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var got posthorn.Job
	w.Work([]string{"mail", "sms"}, posthorn.WorkConfig{}, func(ctx context.Context, job posthorn.Job) error {
		got = job
		if err := job.Progress(ctx, 50); err != nil {
			return err
		}
		return job.SetResult(map[string]int{"sent": 1})
	})
	w.Start()
	id := w.enqueue(posthorn.NewJob{
		Title: "send", Description: "a mail", Tags: []string{"mail", "other"}, Payload: map[string]int{"user": 7},
		Priority: 2, MaxRetries: 5, Metadata: map[string]any{"why": "test"},
	})[0]
	job := w.status(id, admin.JobCompleted)
	if string(job.Progress) != "50" || string(job.Result) != `{"sent":1}` {
		t.Errorf("progress %s, result %s", job.Progress, job.Result)
	}
	var metadata map[string]string
	_ = json.Unmarshal(got.Metadata, &metadata)
	if got.ID != id || got.Attempt != 1 || got.Title != "send" || got.Description != "a mail" || string(got.Payload) != `{"user":7}` ||
		got.Priority != 2 || got.MaxRetries != 5 || len(got.Tags) != 2 || metadata["why"] != "test" || metadata["producer"] != w.NodeID() {
		t.Errorf("the handler got %+v", got)
	}
	if s := w.story(id); s != "PICKED COMPLETED" {
		t.Errorf("the log says %s", s)
	}
}

func TestWorkDoesManyShortJobsOnceEach(t *testing.T) {
	t.Parallel()
	const n = 1000
	w := newWorld(t)
	var done sync.Map
	var twice, count atomic.Int64
	handler := func(_ context.Context, job posthorn.Job) error {
		if _, again := done.LoadOrStore(job.ID, true); again {
			twice.Add(1)
		}
		count.Add(1)
		return nil
	}
	jobs := make([]posthorn.NewJob, n)
	for i := range jobs {
		jobs[i] = posthorn.NewJob{Title: "short", Tags: mail}
	}
	w.enqueue(jobs...)
	other := w.other()
	for _, c := range []*world{w, other} {
		c.Work(mail, posthorn.WorkConfig{}, handler)
		c.Start()
	}
	await.True(t, "all are completed", func() bool {
		return testworld.Ask[int](w, "select count(*) from posthorn.finished_jobs where status = 'COMPLETED'") == n
	})
	if twice.Load() > 0 || count.Load() != n {
		t.Errorf("%d handled, %d of them twice", count.Load(), twice.Load())
	}
}

func TestErrorsOfJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Work(mail, posthorn.WorkConfig{Timeout: 50 * time.Millisecond}, func(ctx context.Context, job posthorn.Job) error {
		if job.Attempt > 1 {
			return nil
		}
		switch job.Title {
		case "plain":
			return errors.New("no luck")
		case "permanent":
			return posthorn.Permanent(errors.New("never"))
		case "later":
			return posthorn.RetryAfter(time.Hour, errors.New("busy"))
		case "panic":
			panic("oh")
		case "slow":
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	})
	w.Start()
	at := []time.Duration{0}
	ids := w.enqueue(
		posthorn.NewJob{Title: "plain", Tags: mail, RetryDelays: at},
		posthorn.NewJob{Title: "permanent", Tags: mail, RetryDelays: at},
		posthorn.NewJob{Title: "later", Tags: mail, RetryDelays: at},
		posthorn.NewJob{Title: "panic", Tags: mail, MaxRetries: posthorn.NoRetries},
		posthorn.NewJob{Title: "slow", Tags: mail, RetryDelays: at},
	)
	w.status(ids[0], admin.JobCompleted)
	if s := w.story(ids[0]); s != "PICKED FAILED PICKED COMPLETED" {
		t.Errorf("plain: %s", s)
	}
	if job := w.status(ids[1], admin.JobFailed); job.ErrorMessage != "never" || job.Attempt != 1 {
		t.Errorf("permanent: %+v", job)
	}
	if job := w.status(ids[3], admin.JobFailed); !strings.HasPrefix(job.ErrorMessage, "panic: oh\n\n") || !strings.Contains(job.ErrorMessage, "work_test.go") {
		t.Errorf("panic: %s", job.ErrorMessage)
	}
	w.status(ids[4], admin.JobCompleted)
	log, err := w.Admin().JobLog(t.Context(), ids[4])
	if err != nil || !strings.Contains(log[1].ErrorMessage, "used up its time") {
		t.Errorf("slow: %+v, %v", log, err)
	}
	job := w.status(ids[2], admin.JobPending)
	for job.RetryCount == 0 { // it may not have been tried yet
		job = w.status(ids[2], admin.JobPending)
	}
	if time.Until(job.NextRetryAt) < 50*time.Minute {
		t.Errorf("later: %+v", job)
	}
}

func TestWorkOnDecodes(t *testing.T) {
	t.Parallel()
	type letter struct{ To string }
	w := newWorld(t)
	got := make(chan letter, 1)
	posthorn.WorkOn(w.Client, mail, posthorn.WorkConfig{}, func(_ context.Context, _ posthorn.Job, l letter) error {
		got <- l
		return nil
	})
	w.Start()
	ids := w.enqueue(posthorn.NewJob{Title: "a", Tags: mail, Payload: letter{"me"}}, posthorn.NewJob{Title: "b", Tags: mail, Payload: []int{1}})
	w.status(ids[0], admin.JobCompleted)
	if l := <-got; l.To != "me" {
		t.Errorf("got %+v", l)
	}
	if job := w.status(ids[1], admin.JobFailed); !strings.Contains(job.ErrorMessage, "does not fit") {
		t.Errorf("undecodable: %+v", job)
	}
}

// What a client has not finished when it stops goes to others at once, and
// nothing is counted.
func TestUnfinishedJobsGoBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := &world{testworld.Open(t, posthorn.Config{DatabaseURL: w.URL, DrainFor: time.Millisecond})}
	begun := make(chan bool, 1)
	first.Work(mail, posthorn.WorkConfig{Concurrency: 1}, func(ctx context.Context, _ posthorn.Job) error {
		begun <- true
		<-ctx.Done()
		return ctx.Err()
	})
	id := w.enqueue(posthorn.NewJob{Title: "a", Tags: mail})[0]
	stop := first.Start()
	<-begun
	stop()
	if job := w.status(id, admin.JobPending); job.RetryCount != 0 || job.ErrorMessage != "" {
		t.Errorf("it went back as %+v", job)
	}
	w.Work(mail, posthorn.WorkConfig{}, func(context.Context, posthorn.Job) error { return nil })
	w.Start()
	if job := w.status(id, admin.JobCompleted); job.Attempt != 2 {
		t.Errorf("attempt %d", job.Attempt)
	}
	if s := w.story(id); s != "PICKED RESET PICKED COMPLETED" {
		t.Errorf("the log says %s", s)
	}
}

// Jobs that a claim brings after Run was told to stop go back at once, and no handler gets
// them.
func TestJobsTakenAtTheLastMomentGoBack(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var handled atomic.Bool
	first := testworld.Open(t, posthorn.Config{DatabaseURL: w.URL})
	first.Work(mail, posthorn.WorkConfig{}, func(context.Context, posthorn.Job) error {
		handled.Store(true)
		return nil
	})
	unlock := testpg.Lock(t, w.Pool(), "running_jobs")
	id := w.enqueue(posthorn.NewJob{Title: "a", Tags: mail})[0]
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- first.Run(ctx) }()
	await.True(t, "a claim waits", func() bool {
		return testworld.Ask[bool](w, `select exists (
			select from pg_locks l join pg_stat_activity a on a.pid = l.pid
			where l.relation = 'posthorn.running_jobs'::regclass and not l.granted and a.query ~ 'claim_jobs')`)
	})
	stop()
	unlock()
	if err := await.Value(t, "the end of Run", ended); err != nil {
		t.Error(err)
	}
	if job := w.status(id, admin.JobPending); job.RetryCount != 0 || handled.Load() {
		t.Errorf("it is %+v, handled %v", job, handled.Load())
	}
	if s := w.story(id); s != "PICKED RESET" {
		t.Errorf("the log says %q", s)
	}
}

// A job that takes longer than its lease keeps it, and its beginning is logged.
func TestLongJobsKeepTheirLeases(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const lease = time.Second
	begun, hold := make(chan bool), make(chan bool)
	release := sync.OnceFunc(func() { close(hold) })
	w.Work(mail, posthorn.WorkConfig{LeaseFor: lease, Concurrency: 1}, func(context.Context, posthorn.Job) error {
		begun <- true
		<-hold
		return nil
	})
	move := w.StopClock()
	w.Start()
	t.Cleanup(release) // before Run is awaited
	id := w.enqueue(posthorn.NewJob{Title: "long", Tags: mail})[0]
	await.Value(t, "the job", begun)
	for range 2 {
		move(lease * 3 / 4)
		await.True(t, "the lease is extended", func() bool {
			return testworld.Ask[bool](w, "select lease_until = posthorn.now() + $1 from posthorn.running_jobs", lease)
		})
	}
	await.True(t, "the beginning is logged", func() bool { return !w.status(id, admin.JobProcessing).StartedAt.IsZero() })
	release()
	w.status(id, admin.JobCompleted)
	if s := w.story(id); s != "PICKED STARTED COMPLETED" {
		t.Errorf("the log says %s", s)
	}
}

// A worker whose handlers are busy leaves jobs to the others that wait in its process, also if
// it has asked for more jobs than there were, because jobs were short before.
func TestBusyWorkerLeavesJobsToOthers(t *testing.T) {
	t.Parallel()
	w, ctx := newWorld(t), await.Context(t)
	begun, hold := make(chan bool), make(chan bool)
	w.Work(mail, posthorn.WorkConfig{Concurrency: 1}, func(_ context.Context, job posthorn.Job) error {
		if job.Title == "long" {
			begun <- true
			<-hold
		}
		return nil
	})
	w.Start()
	t.Cleanup(func() { close(hold) })
	w.status(w.enqueue(posthorn.NewJob{Title: "short", Tags: mail})[0], admin.JobCompleted)
	w.enqueue(posthorn.NewJob{Title: "long", Tags: mail})
	await.Value(t, "the long job", begun)
	waiter := w.Internal().Queues.Join(work.QueueName(ns, mail))
	defer waiter.Leave()
	for range 3 {
		if !waiter.Wait(ctx) {
			t.Fatal("no turn came")
		}
	}
	w.enqueue(posthorn.NewJob{Title: "short", Tags: mail})
	for {
		jobs, err := pg.ClaimJobs(ctx, w.Internal().Pool, ns, "other", mail, 1, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if len(jobs) > 0 {
			break
		}
		if !waiter.Wait(ctx) {
			t.Fatal("the job did not come")
		}
	}
}

// The context of a handler ends soon after its job was cancelled or reset, and does not
// wait for the next heartbeat.
func TestHandlersOfLostJobsEnd(t *testing.T) {
	t.Parallel()
	for name, lose := range map[string]func(w *world, id int64) error{
		"cancelled": func(w *world, id int64) error {
			return w.Admin().In(w.Pool()).CancelJob(w.T.Context(), id, "not needed")
		},
		"reset": func(w *world, id int64) error { return w.Admin().In(w.Pool()).ResetJob(w.T.Context(), id, "stuck") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			begun, ended := make(chan bool, 1), make(chan error, 1)
			w.Work(mail, posthorn.WorkConfig{LeaseFor: time.Hour}, func(ctx context.Context, job posthorn.Job) error {
				if job.Attempt > 1 {
					return nil
				}
				begun <- true
				select {
				case <-ctx.Done():
					ended <- context.Cause(ctx)
				case <-t.Context().Done(): // the test has given up
				}
				return nil // is ignored
			})
			w.Start()
			id := w.enqueue(posthorn.NewJob{Title: "a", Tags: mail})[0]
			<-begun
			await.True(t, "the start is recorded, and then the last heartbeat for long", func() bool {
				return testworld.Ask[bool](w, "select coalesce(seen_at > started_at, false) from posthorn.running_jobs where job = $1", id)
			})
			if err := lose(w, id); err != nil {
				t.Fatal(err)
			}
			if cause := await.Value(t, "the end of the handler", ended); !errors.Is(cause, posthorn.ErrLeaseLost) {
				t.Errorf("it ended with %v", cause)
			}
			want, story := admin.JobCancelled, "PICKED CANCELLED"
			if name == "reset" {
				want, story = admin.JobCompleted, "PICKED RESET PICKED COMPLETED"
			}
			w.status(id, want)
			if s := strings.ReplaceAll(w.story(id), "STARTED ", ""); s != story {
				t.Errorf("the log says %s", s)
			}
		})
	}
}

// A job that is completed in the handler's transaction is done if and only if
// that commits.
func TestJobsCompleteInTransactions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec("create table effects (job bigint)")
	w.Work(mail, posthorn.WorkConfig{}, func(ctx context.Context, job posthorn.Job) error {
		tx, err := w.Pool().Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }()
		if _, err := tx.Exec(ctx, "insert into effects values ($1)", job.ID); err != nil {
			return err
		}
		if err := job.Complete(ctx, tx); err != nil {
			return err
		}
		if job.Attempt == 1 {
			return errors.New("rolled back")
		}
		return tx.Commit(ctx)
	})
	w.Start()
	id := w.enqueue(posthorn.NewJob{Title: "a", Tags: mail, RetryDelays: []time.Duration{0}})[0]
	w.status(id, admin.JobCompleted)
	if n := testworld.Ask[int](w, "select count(*) from effects"); n != 1 {
		t.Errorf("%d effects", n)
	}
	if s := w.story(id); s != "PICKED FAILED PICKED COMPLETED" {
		t.Errorf("the log says %s", s)
	}
}

// A handler that returns nil has done its job, although its time was over.
func TestHandlerThatIsDoneAfterItsTimeout(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Work(mail, posthorn.WorkConfig{Timeout: time.Millisecond}, func(ctx context.Context, _ posthorn.Job) error {
		<-ctx.Done()
		return nil
	})
	w.Start()
	if job := w.status(w.enqueue(posthorn.NewJob{Title: "slow", Tags: mail})[0], admin.JobCompleted); job.Attempt != 1 {
		t.Errorf("it needed %d attempts", job.Attempt)
	}
}

// While a transaction of a handler finishes its job, the heartbeat leaves that job
// alone: it would wait for the transaction, and so extend no job, and then take the
// job for lost.
func TestCompletedJobsAreNotLost(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var log testworld.Buffer
	ended := make(chan error, 10)
	ph, err := posthorn.Open(t.Context(), posthorn.Config{DatabaseURL: w.URL, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ph.Close)
	lease := func() (until time.Time) {
		_ = w.Pool().QueryRow(t.Context(), "select max(lease_until) from posthorn.running_jobs").Scan(&until)
		return until
	}
	both, over := make(chan struct{}), make(chan struct{})
	awaitHeartbeats := func(ctx context.Context, n int) { // of the job beside
		for range n {
			for before := lease(); !lease().After(before) && ctx.Err() == nil; {
				await.Pause()
			}
		}
	}
	ph.Work(mail, posthorn.WorkConfig{LeaseFor: 9 * time.Second}, func(ctx context.Context, job posthorn.Job) error {
		if job.Title == "beside" {
			close(both)
			<-over
			return nil
		}
		defer close(over)
		<-both
		tx, err := w.Pool().Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }()
		if err := job.Complete(ctx, tx); err != nil {
			return err
		}
		awaitHeartbeats(ctx, 2)
		if err := tx.Commit(ctx); err != nil {
			return err
		}
		awaitHeartbeats(ctx, 2) // the first one's losses are noted by then
		ended <- context.Cause(ctx)
		return nil
	})
	(&world{&testworld.World{Client: ph, T: t, URL: w.URL}}).Start()
	ids := w.enqueue(posthorn.NewJob{Title: "completes itself", Tags: mail}, posthorn.NewJob{Title: "beside", Tags: mail})
	for _, id := range ids {
		if job := w.status(id, admin.JobCompleted); job.Attempt != 1 {
			t.Errorf("job %d needed %d attempts", id, job.Attempt)
		}
	}
	if cause := await.Value(t, "the end of the handler", ended); cause != nil {
		t.Errorf("the context of a job that completed itself ended: %v", cause)
	}
	if strings.Contains(log.String(), "lost") {
		t.Errorf("logged:\n%s", log.String())
	}
}

// A job that a handler's transaction ends is not lost, although a comparison with the
// database or a heartbeat that began before does not find it.
func TestJobsThatCompleteThemselvesAreNotLost(t *testing.T) {
	t.Parallel()
	for call, args := range map[string]string{
		"held_jobs": "text, bigint[], int[]", "heartbeat_jobs": "text, bigint[], int[], interval",
	} {
		t.Run(call, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			var log testworld.Buffer
			ph, err := posthorn.Open(t.Context(), posthorn.Config{DatabaseURL: w.URL, Logger: slog.New(slog.NewTextHandler(&log, nil))})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(ph.Close)
			resume := w.suspend(call, args)
			ended, completed := make(chan error, 1), make(chan bool)
			ph.Work(mail, posthorn.WorkConfig{LeaseFor: 9 * time.Second}, func(ctx context.Context, job posthorn.Job) error {
				if job.Title == "beside" {
					<-completed
					return nil
				}
				defer close(completed)
				w.awaitSuspended()
				tx, err := w.Pool().Begin(ctx)
				if err != nil {
					return err
				}
				defer func() { _ = tx.Rollback(ctx) }()
				if err := job.Complete(ctx, tx); err != nil {
					return err
				}
				if err := tx.Commit(ctx); err != nil {
					return err
				}
				resume()
				ended <- context.Cause(ctx)
				return nil
			})
			(&world{&testworld.World{Client: ph, T: t, URL: w.URL}}).Start()
			ids := w.enqueue(posthorn.NewJob{Title: "completes itself", Tags: mail}, posthorn.NewJob{Title: "beside", Tags: mail})
			if cause := await.Value(t, "the end of the handler", ended); cause != nil {
				t.Errorf("the context of a job that completed itself ended: %v", cause)
			}
			for _, id := range ids {
				w.status(id, admin.JobCompleted)
			}
			if strings.Contains(log.String(), "lost") {
				t.Errorf("logged:\n%s", log.String())
			}
		})
	}
}

// suspend makes the calls of a SQL function wait. resume lets them go on, and returns
// when the next call has begun: the caller has worked on the answer of the first by then.
func (w *world) suspend(function, args string) (resume func()) {
	w.T.Helper()
	w.Exec("create sequence posthorn.calls")
	w.Exec("create schema suspended")
	w.Exec("alter function posthorn." + function + "(" + args + ") set schema suspended") // its body has its name
	parameters := "$1, $2, $3, $4"[:4*strings.Count(args, ",")+2]
	w.Exec("create function posthorn." + function + "(" + args + `) returns setof bigint language plpgsql as $$
		begin
			perform nextval('posthorn.calls');
			perform pg_advisory_xact_lock_shared(7);
			return query select suspended.` + function + `(` + parameters + `);
		end $$`)
	conn, err := w.Pool().Acquire(w.T.Context())
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(conn.Release)
	if _, err := conn.Exec(w.T.Context(), "select pg_advisory_lock(7)"); err != nil {
		w.T.Fatal(err)
	}
	return func() {
		calls := testworld.Ask[int64](w, "select last_value from posthorn.calls")
		if _, err := conn.Exec(w.T.Context(), "select pg_advisory_unlock(7)"); err != nil {
			w.T.Error(err)
		}
		await.True(w.T, "the next call", func() bool { return testworld.Ask[int64](w, "select last_value from posthorn.calls") > calls })
	}
}

// awaitSuspended waits until a call of a suspended function waits.
func (w *world) awaitSuspended() {
	w.T.Helper()
	await.True(w.T, "the call waits", func() bool {
		return testworld.Ask[bool](w, `select exists (
			select from pg_locks l join pg_database d on d.oid = l.database
			where d.datname = current_database() and l.locktype = 'advisory' and l.objid = 7 and not l.granted)`)
	})
}

// A handler that fails after its transaction has completed the job has not lost it.
func TestHandlerFailsAfterItHasCompletedItsJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var log testworld.Buffer
	ph, err := posthorn.Open(t.Context(), posthorn.Config{DatabaseURL: w.URL, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ph.Close)
	ph.Work(mail, posthorn.WorkConfig{}, func(ctx context.Context, job posthorn.Job) error {
		if err := job.Complete(ctx, w.Pool()); err != nil {
			return err
		}
		return errors.New("too late")
	})
	(&world{&testworld.World{Client: ph, T: t, URL: w.URL}}).Start()
	id := w.enqueue(posthorn.NewJob{Title: "a", Tags: mail})[0]
	await.True(t, "it is logged", func() bool { return strings.Contains(log.String(), "the job is completed") })
	if s := w.story(id); s != "PICKED COMPLETED" || strings.Contains(log.String(), "lost") {
		t.Errorf("the log of the job says %s; logged:\n%s", s, log.String())
	}
}

// The job of a handler that does not return goes to another worker, soon after the time of
// the handler is over.
func TestHandlerThatHangsDoesNotKeepItsJob(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	release := make(chan bool)
	defer close(release)
	w.Work(mail, posthorn.WorkConfig{LeaseFor: time.Second, Timeout: time.Millisecond, Concurrency: 1}, func(context.Context, posthorn.Job) error {
		<-release
		return nil
	})
	w.Start()
	id := w.enqueue(posthorn.NewJob{Title: "hangs", Tags: mail})[0]
	w.status(id, admin.JobProcessing)
	await.True(t, "another worker gets the job", func() bool {
		return testworld.Ask[bool](w, "select exists (select from posthorn.claim_jobs('default', 'other', '{mail}'))")
	})
}

// Failures of jobs are logged, the last one as an error.
func TestFailuresOfJobsAreLogged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var log testworld.Buffer
	ph, err := posthorn.Open(t.Context(), posthorn.Config{DatabaseURL: w.URL, Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ph.Close)
	ph.Work(mail, posthorn.WorkConfig{}, func(_ context.Context, job posthorn.Job) error {
		if job.Attempt == 1 {
			panic("no paper")
		}
		return posthorn.Permanent(errors.New("no printer"))
	})
	(&world{&testworld.World{Client: ph, T: t, URL: w.URL}}).Start()
	id := w.enqueue(posthorn.NewJob{Title: "a", Tags: mail, RetryDelays: []time.Duration{0}})[0]
	w.status(id, admin.JobFailed)
	for _, text := range []string{
		fmt.Sprintf("job=%d title=a attempt=1 error=\"panic: no paper\"", id), "level=WARN", "next_attempt=", "work_test.go",
		fmt.Sprintf("job=%d title=a attempt=2 error=\"no printer\"", id), "level=ERROR",
	} {
		await.True(t, text, func() bool { return strings.Contains(log.String(), text) })
	}
}

// A result that the database cannot keep fails the job, which is not done again.
func TestResultsThatCannotBeKept(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Work(mail, posthorn.WorkConfig{}, func(_ context.Context, job posthorn.Job) error { return job.SetResult("\x00") })
	w.Start()
	id := w.enqueue(posthorn.NewJob{Title: "a", Tags: mail})[0]
	if job := w.status(id, admin.JobFailed); !strings.Contains(job.ErrorMessage, "its result cannot be saved") || job.Attempt != 1 {
		t.Errorf("%+v", job)
	}
}

func TestEnqueueIsPartOfTheTransaction(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, commit := range []bool{false, true} {
		tx, err := w.Pool().Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ids, err := w.Enqueue(t.Context(), tx, posthorn.NewJob{Title: "a"}, posthorn.NewJob{Title: "b", UniqueKey: "k"})
		if err != nil || len(ids) != 2 {
			t.Fatal(ids, err)
		}
		end, want := tx.Rollback, posthorn.ErrNotFound
		if commit {
			end, want = tx.Commit, nil
		}
		if err := end(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if _, err := w.Admin().Job(t.Context(), id); !errors.Is(err, want) {
				t.Errorf("committed %v: %v", commit, err)
			}
		}
	}
}

func TestWrongWorkIsTold(t *testing.T) {
	t.Parallel()
	all := newWorld(t)
	nothing := func(context.Context, posthorn.Job) error { return nil }
	for name, set := range map[string]func(c *posthorn.Client){
		"nil":         func(c *posthorn.Client) { c.Work(mail, posthorn.WorkConfig{}, nil) },
		"nil batch":   func(c *posthorn.Client) { c.WorkBatch(mail, posthorn.WorkConfig{}, nil) },
		"nil tx":      func(c *posthorn.Client) { c.WorkBatchTx(mail, posthorn.WorkConfig{}, nil) },
		"typed nil":   func(c *posthorn.Client) { posthorn.WorkOn[int](c, mail, posthorn.WorkConfig{}, nil) },
		"concurrency": func(c *posthorn.Client) { c.Work(mail, posthorn.WorkConfig{Concurrency: -1}, nothing) },
		"batch":       func(c *posthorn.Client) { c.Work(mail, posthorn.WorkConfig{BatchSize: 1 << 20}, nothing) },
		"lease":       func(c *posthorn.Client) { c.Work(mail, posthorn.WorkConfig{LeaseFor: 1}, nothing) },
		"tag":         func(c *posthorn.Client) { c.Work([]string{"a", " "}, posthorn.WorkConfig{}, nothing) },
		"twice": func(c *posthorn.Client) {
			c.Work(mail, posthorn.WorkConfig{}, nothing)
			c.Work(mail, posthorn.WorkConfig{}, nothing)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := all.other()
			set(w.Client)
			ctx := await.Context(t)
			if err := w.Run(ctx); !errors.Is(err, posthorn.ErrInvalid) || posthorn.Hint(err) == "" {
				t.Errorf("Run returned %v", err)
			}
		})
	}
}

func TestEnqueueRefusesWhatDoesNotEncode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, j := range []posthorn.NewJob{
		{Title: "a", Payload: func() {}},
		{Title: "a", Metadata: map[string]any{"f": func() {}}},
		{Title: ""},
		{Title: "a", UniqueFor: time.Hour},
		{Title: "a", Weight: 2},
		{Title: "a", Payload: json.RawMessage(`{`)},
		{Title: "a", RetryDelays: []time.Duration{-1e9}},
	} {
		if _, err := w.Enqueue(t.Context(), w.Pool(), j); !errors.Is(err, posthorn.ErrInvalid) {
			t.Errorf("%+v: %v", j, err)
		}
	}
}

func TestStatsCountJobs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Work(mail, posthorn.WorkConfig{}, func(_ context.Context, job posthorn.Job) error {
		if job.Title == "bad" {
			return posthorn.Permanent(errors.New("no"))
		}
		return nil
	})
	stop := w.Start()
	ids := w.enqueue(posthorn.NewJob{Title: "good", Tags: mail}, posthorn.NewJob{Title: "bad", Tags: mail})
	w.status(ids[0], admin.JobCompleted)
	w.status(ids[1], admin.JobFailed)
	stop()
	got := w.Stats()[0]
	want := fmt.Sprint("jobs tagged mail ", 2, 1, 1)
	if h := got.Handlers[0]; fmt.Sprint(got.Group, " ", h.Events, h.Failed, h.DeadLetters) != want {
		t.Error(cmp.Diff(want, fmt.Sprintf("%+v", got)))
	}
}

// A handler that asks for more time three times has not failed.
func TestSnoozedJobHasNotFailed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var calls atomic.Int32
	w.Work([]string{"x"}, posthorn.WorkConfig{}, func(context.Context, posthorn.Job) error {
		if calls.Add(1) <= 3 {
			return posthorn.Snooze(0)
		}
		return nil
	})
	id := w.enqueue(posthorn.NewJob{Title: "a", Tags: []string{"x"}})[0]
	w.Start()
	job := w.status(id, admin.JobCompleted)
	if job.RetryCount != 0 {
		t.Errorf("%d retries are used up", job.RetryCount)
	}
	if got, want := w.story(id), "PICKED SNOOZED PICKED SNOOZED PICKED SNOOZED PICKED COMPLETED"; got != want {
		t.Errorf("log %s, want %s", got, want)
	}
}
