package work_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testchild"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

const flowURL, flowPoint = "POSTHORN_TEST_FLOW_URL", "POSTHORN_TEST_FLOW_POINT"

const (
	flowSteps   = 5 // those in a transaction have an odd number
	noSuchPoint = 3 // the exit code of a process whose flow has ended without coming to its point
)

// A flow of steps, a sleep and a wait for an event is killed with -9 at each point between two statements, one job for each point. The
// effect of each step in a transaction happens exactly once, no step that is saved is made again, and all flows end with
// the same result.
func TestFlowIsKilledAtEachPoint(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec("create table public.effects (job bigint, step int, in_tx boolean, again boolean)")
	w.settleFlows()
	killed := 0
	for point := 1; ; point++ {
		w.enqueue(posthorn.NewJob{Title: strconv.Itoa(point), Tags: []string{"flow"}})
		child := testchild.Start(t, "TestFlowProcess", flowURL+"="+w.URL, fmt.Sprintf("%s=%d", flowPoint, point))
		_ = child.End() // its state is looked at
		w.Exec("update posthorn.running_jobs set lease_until = posthorn.now()")
		if child.ProcessState.ExitCode() == noSuchPoint {
			break
		}
		if status, ok := child.ProcessState.Sys().(syscall.WaitStatus); !ok || status.Signal() != syscall.SIGKILL {
			t.Fatalf("point %d: the process was not killed: %v", point, child.ProcessState)
		}
		killed++
	}
	if least := 3*flowSteps + 4; killed < least {
		t.Errorf("%d processes were killed, want %d at least", killed, least)
	}
	w.workOnFlows(0)
	w.Start()
	await.True(t, "all flows have ended", func() bool {
		return testworld.Ask[bool](w, "select bool_and(status = 'COMPLETED') from posthorn.jobs")
	})
	for _, check := range []struct{ name, sql string }{
		{"flows with another result", `select count(*) from posthorn.jobs where result::text <> '"012seven34"'`},
		{"effects in transactions that did not happen exactly once", `select count(*) from (
			select from posthorn.jobs j cross join generate_series(1, 4, 2) s left join public.effects e on e.job = j.id and e.step = s
			group by j.id, s having count(e.job) <> 1) x`},
		{"steps that were made again although they were saved", "select count(*) from public.effects where again"},
		{"steps that never happened", `select count(*) from posthorn.jobs j cross join generate_series(0, 4) s
			where not exists (select from public.effects e where e.job = j.id and e.step = s)`},
	} {
		if n := testworld.Ask[int](w, check.sql); n != 0 {
			t.Errorf("%d %s", n, check.name)
		}
	}
}

// settleFlows publishes the event that a flow waits for when it does, once for each flow.
func (w *world) settleFlows() {
	ctx, stop := context.WithCancel(w.T.Context())
	var settling sync.WaitGroup
	w.T.Cleanup(func() { stop(); settling.Wait() })
	settling.Go(func() {
		for ctx.Err() == nil {
			_, err := w.Pool().Exec(ctx, `select posthorn.publish('default', 'flow.settled', '"seven"', key => a.event_key)
				from posthorn.job_awaits a where not exists (select from posthorn.events e where e.type = 'flow.settled' and e.key = a.event_key)`)
			if err != nil && ctx.Err() == nil {
				w.T.Error(err)
				return
			}
			await.Pause()
		}
	})
}

// TestFlowProcess is the process that kills itself in the flow whose title is its point.
func TestFlowProcess(t *testing.T) {
	url := os.Getenv(flowURL)
	if url == "" {
		t.Skip("run by others")
	}
	point, err := strconv.Atoi(os.Getenv(flowPoint))
	if err != nil {
		t.Fatal(err)
	}
	w := &world{testworld.Open(t, posthorn.Config{DatabaseURL: url, Logger: slog.New(slog.DiscardHandler)})}
	w.workOnFlows(point)
	t.Fatal(w.Run(t.Context()))
}

// workOnFlows makes flows. The process kills itself where the one whose title is the given point comes to that point.
func (w *world) workOnFlows(point int) {
	reached := 0 // in one or more attempts
	w.Work([]string{"flow"}, posthorn.WorkConfig{Concurrency: 1, BatchSize: 1, LeaseFor: time.Hour}, func(ctx context.Context, job posthorn.Job) error {
		may := func() {
			if job.Title != strconv.Itoa(point) {
				return
			}
			if reached++; reached == point {
				_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
				select {}
			}
		}
		result := ""
		for i := range flowSteps {
			name := fmt.Sprint("step ", i)
			effect := func(ctx context.Context, db posthorn.DB) (string, error) {
				may()
				_, err := db.Exec(ctx, `insert into public.effects values ($1, $2, $3,
					exists (select from posthorn.saved_steps s where s.job = $1 and s.name = $4))`, job.ID, i, i%2 == 1, name)
				may()
				return fmt.Sprint(i), err
			}
			var made string
			var err error
			if i%2 == 1 {
				made, err = posthorn.StepTx(ctx, job, name, func(ctx context.Context, tx pgx.Tx) (string, error) { return effect(ctx, tx) })
			} else {
				made, err = posthorn.Step(ctx, job, name, func(ctx context.Context) (string, error) { return effect(ctx, w.Pool()) })
			}
			if err != nil {
				return err
			}
			may()
			if i == 2 {
				if err := job.Sleep(ctx, "nap", time.Millisecond); err != nil {
					may()
					return err
				}
				may()
			}
			result += made
			if i == 2 {
				settled, err := job.Await(ctx, "settled", "flow.settled", strconv.FormatInt(job.ID, 10), time.Hour)
				if err != nil {
					may()
					return err
				}
				may()
				var n string
				if err := settled.Decode(&n); err != nil {
					return err
				}
				result += n
			}
		}
		if job.Title == strconv.Itoa(point) {
			os.Exit(noSuchPoint)
		}
		return job.SetResult(result)
	})
}
