package pg_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
)

const jobLease = 5 * time.Minute

func claimOne(t *testing.T, db pg.DB, worker string, tags ...string) pg.ClaimedJob {
	t.Helper()
	jobs := must(pg.ClaimJobs(t.Context(), db, ns, worker, tags, 1, jobLease))(t)
	if len(jobs) != 1 {
		t.Fatalf("claimed %d jobs, want 1", len(jobs))
	}
	return jobs[0]
}

func TestEnqueueKeepsEverything(t *testing.T) {
	everyMode(t, func(t *testing.T, db *pg.Pool) {
		retries := 7
		id := must(pg.Enqueue(t.Context(), db, ns, pg.NewJob{
			Title: "send", Description: "a mail", Tags: []string{"mail", `o'"dd{}\`}, Payload: json.RawMessage(`{"b":1, "a":2}`),
			Priority: 3, MaxRetries: &retries, RetryDelays: []time.Duration{1500 * time.Millisecond, time.Hour},
			UniqueKey: "k", UniqueFor: time.Minute, Metadata: json.RawMessage(`{"m":1}`), FairKey: "tenant", Weight: 2.5,
		}))(t)
		got := must(admin.New(db, ns).Job(t.Context(), id))(t)
		want := admin.JobStatus{
			ID: id, Title: "send", Description: "a mail", Tags: []string{"mail", `o'"dd{}\`}, Status: "PENDING", State: "ready",
			Payload: json.RawMessage(`{"b":1, "a":2}`), Metadata: json.RawMessage(`{"m":1}`), Priority: 3, MaxRetries: 7,
			RetryDelays: []time.Duration{1500 * time.Millisecond, time.Hour}, UniqueKey: "k", FairKey: "tenant", Weight: 2.5,
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(admin.JobStatus{}, "RunAt", "CreatedAt", "UpdatedAt", "Why")); diff != "" {
			t.Error(diff)
		}
	})
}

func TestEnqueueManyKeepsOrder(t *testing.T) {
	everyMode(t, func(t *testing.T, db *pg.Pool) {
		at := time.Date(2030, 1, 2, 3, 4, 5, 678000, time.UTC)
		plain := []pg.NewJob{{Title: "a", Tags: []string{"x"}}, {Title: "b", RunAt: &at, Metadata: json.RawMessage(`{"m":1}`)}, {Title: "c", Priority: -4}, {Title: "f", FairKey: "k"}, {Title: "g", FairKey: "k", Weight: 3}}
		for _, jobs := range [][]pg.NewJob{plain, append(plain, pg.NewJob{Title: "d", Description: "special", UniqueKey: "k"}, pg.NewJob{Title: "e", UniqueKey: "k"})} {
			ids := must(pg.EnqueueMany(t.Context(), db, ns, jobs))(t)
			if len(ids) != len(jobs) {
				t.Fatalf("%d ids for %d jobs", len(ids), len(jobs))
			}
			for i, id := range ids[:min(len(ids), 6)] {
				got := must(admin.New(db, ns).Job(t.Context(), id))(t)
				if got.Title != jobs[i].Title || got.Priority != jobs[i].Priority || jobs[i].RunAt != nil && !got.RunAt.Equal(at) ||
					got.FairKey != jobs[i].FairKey || jobs[i].Weight != 0 && got.Weight != jobs[i].Weight {
					t.Errorf("job %d is %+v", i, got)
				}
			}
			if len(ids) == 7 && ids[5] != ids[6] {
				t.Errorf("one key, two jobs: %v", ids)
			}
		}
	})
}

func TestJobFromClaimToEnd(t *testing.T) {
	everyMode(t, func(t *testing.T, db *pg.Pool) {
		ctx := t.Context()
		id := must(pg.Enqueue(ctx, db, ns, pg.NewJob{Title: "a", Tags: []string{"x"}}))(t)
		job := claimOne(t, db, "w", "x")
		held := pg.HeldJob{ID: id, Worker: "w", Attempt: job.Attempt}
		first := must(pg.StartJob(ctx, db, held))(t)
		if again := must(pg.StartJob(ctx, db, held))(t); again.ID != first.ID || first.Action != "STARTED" {
			t.Errorf("started twice: %+v, %+v", first, again)
		}
		must(pg.HeartbeatJob(ctx, db, held, new(time.Hour), json.RawMessage(`{"done":1}`)))(t)
		zero := time.Duration(0)
		failed := must(pg.FailJob(ctx, db, held, pg.JobFailure{Error: "no\x00", RetryIn: &zero}))(t)
		if failed.RetryScheduled == nil || !*failed.RetryScheduled || failed.ErrorMessage != "no\uFFFD" {
			t.Errorf("failure: %+v", failed)
		}
		job = claimOne(t, db, "w", "x")
		took := int64(12)
		held.Attempt = job.Attempt
		must(pg.CompleteJob(ctx, db, held, pg.JobDone{ExecutionTimeMS: &took, Result: json.RawMessage(`[1]`)}))(t)
		if again := must(pg.CompleteJob(ctx, db, held, pg.JobDone{}))(t); !again.Repeated || *again.ExecutionTimeMS != 12 {
			t.Errorf("repeated: %+v", again)
		}
		var story []string
		for _, e := range must(admin.New(db, ns).JobLog(ctx, id))(t) {
			story = append(story, e.Action)
		}
		if diff := cmp.Diff([]string{"PICKED", "STARTED", "FAILED", "PICKED", "COMPLETED"}, story); diff != "" {
			t.Error(diff)
		}
		if got := must(admin.New(db, ns).Job(ctx, id))(t); string(got.Result) != `[1]` || got.Status != "COMPLETED" {
			t.Errorf("job: %+v", got)
		}
	})
}

func TestReleasedJobsAreCountedAsNotTried(t *testing.T) {
	everyMode(t, func(t *testing.T, db *pg.Pool) {
		ctx := t.Context()
		id := must(pg.Enqueue(ctx, db, ns, pg.NewJob{Title: "a", Tags: []string{"x"}}))(t)
		job := claimOne(t, db, "w", "x")
		for _, stranger := range []struct {
			worker  string
			attempt int32
		}{{"other", 1}, {"w", 2}} {
			if ids := must(pg.ReleaseJobs(ctx, db, stranger.worker, []int64{id}, []int32{stranger.attempt}, ""))(t); len(ids) != 0 {
				t.Errorf("%+v released %v", stranger, ids)
			}
		}
		if ids := must(pg.HeartbeatJobs(ctx, db, "w", []int64{id, id + 1}, []int32{int32(job.Attempt), 1}, time.Hour))(t); len(ids) != 1 || ids[0] != id {
			t.Errorf("still has %v", ids)
		}
		if until := must(admin.New(db, ns).Job(ctx, id))(t).LeaseUntil; !until.After(job.LeaseUntil) {
			t.Errorf("the lease ends at %v, as before", until)
		}
		if ids := must(pg.ReleaseJobs(ctx, db, "w", []int64{id}, []int32{int32(job.Attempt)}, ""))(t); len(ids) != 1 {
			t.Errorf("released %v", ids)
		}
		again := claimOne(t, db, "v", "x")
		if again.ID != id || again.Attempt != 2 || again.RetryCount != 0 {
			t.Errorf("came back as %+v", again)
		}
		if _, err := pg.CompleteJob(ctx, db, pg.HeldJob{ID: id, Worker: "w"}, pg.JobDone{}); !errors.Is(err, pg.ErrLeaseLost) {
			t.Errorf("the one who gave it back completed it: %v", err)
		}
	})
}

func TestListJobs(t *testing.T) {
	everyMode(t, func(t *testing.T, db *pg.Pool) {
		ctx := t.Context()
		ids := must(pg.EnqueueMany(ctx, db, ns, []pg.NewJob{{Title: "a", Tags: []string{"x"}}, {Title: "b", Tags: []string{"y"}}, {Title: "c", Tags: []string{"x", "y"}}}))(t)
		check(t, admin.New(db, ns).CancelJob(ctx, ids[0], "not needed"))
		for _, c := range []struct {
			filter admin.JobFilter
			want   []int64
		}{
			{admin.JobFilter{}, ids},
			{admin.JobFilter{NewestFirst: true, Limit: 1, Offset: 1}, ids[1:2]},
			{admin.JobFilter{Tags: []string{"x"}, Status: "PENDING", Stalled: "false"}, ids[2:]},
		} {
			var got []int64
			for _, j := range must(admin.New(db, ns).Jobs(ctx, c.filter))(t) {
				got = append(got, j.ID)
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("%+v: %s", c.filter, diff)
			}
		}
		if n := must(admin.New(db, ns).CountJobs(ctx, admin.JobFilter{Tags: []string{"x"}}))(t); n != 2 {
			t.Errorf("counted %d", n)
		}
	})
}

func TestJobLimitsAndPauses(t *testing.T) {
	everyMode(t, func(t *testing.T, db *pg.Pool) {
		ctx := t.Context()
		check(t, admin.New(db, ns).SetJobLimit(ctx, "x", admin.JobLimit{MaxRunning: 1, MaxStarted: 100, Period: time.Minute}))
		check(t, admin.New(db, ns).PauseJobTag(ctx, "y"))
		got := must(admin.New(db, ns).JobLimits(ctx))(t)
		if len(got) != 2 || got[0].MaxRunning != 1 || got[0].PeriodSeconds != 60 || got[1].PausedAt.IsZero() {
			t.Errorf("limits: %+v", got)
		}
		if was := must(admin.New(db, ns).ResumeJobTag(ctx, "y"))(t); !was {
			t.Error("it was paused")
		}
	})
}
