package server

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/posthorntest"
)

func (s *served) waitingForJobs(t testing.TB, n int64) {
	t.Helper()
	await.True(t, fmt.Sprint(n, " requests wait"), func() bool { return s.server.jobWaits.Load() == n })
}

// A new job is handed to a request that waits for it. (A request whose time is over gets
// none.)
func TestWaitingForAJob(t *testing.T) {
	t.Parallel()
	s := serve(t)
	for range 2 { // the second time, the goroutine that polls runs already
		answers := make(chan answered, 1)
		go func() { answers <- s.call(t, "GET", "/events/subscribe?tags=x,y&worker_id=w:1&wait=60", nil) }()
		s.waitingForJobs(t, 1)
		s.enqueue(t, `{"title":"other","tags":"z"}`)
		id := s.enqueue(t, `{"title":"a","tags":"y"}`)
		var job claimedJobView
		await.Value(t, "the answer", answers).want(t, 200, &job)
		equal(t, "id", job.ID, id)
	}
}

// A job that becomes due is handed to a request that waits, too.
func TestWaitingForAJobThatIsDueLater(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.enqueue(t, `{"title":"a","tags":"x","run_at":"`+time.Now().Add(time.Hour).UTC().Format(time.RFC3339)+`"}`)
	answers := make(chan answered, 1)
	go func() { answers <- s.call(t, "GET", "/events/subscribe?tags=x&worker_id=w:1&wait=60", nil) }()
	s.waitingForJobs(t, 1)
	posthorntest.Advance(t, s.ph, 2*time.Hour)
	await.Value(t, "the job", answers).want(t, 200)
}

func TestWaitingWithoutAJob(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.enqueue(t, `{"title":"a","tags":"y"}`)
	job, err := s.server.awaitJob(t.Context(), caller{}, jobClaim{"default", "w:1", []string{"x"}, time.Minute}, time.Millisecond)
	if job != nil || err != nil {
		t.Errorf("it got %+v, %v", job, err)
	}
	equal(t, "requests that wait", s.server.jobWaits.Load(), 0)
}

// Requests that wait hold no connection to the database, and each gets another job.
func TestManyWaitForJobs(t *testing.T) {
	t.Parallel()
	s := serve(t)
	waiters := 2 * int(s.ph.Pool().Config().MaxConns)
	var mu sync.Mutex
	seen := map[int64]bool{}
	var all sync.WaitGroup
	for i := range waiters {
		all.Go(func() {
			var job claimedJobView
			s.call(t, "GET", fmt.Sprintf("/events/subscribe?tags=x,%d&worker_id=w:%d&wait=60", i%7, i), nil).want(t, 200, &job)
			mu.Lock()
			seen[job.ID] = true
			mu.Unlock()
		})
	}
	s.waitingForJobs(t, int64(waiters))
	for range waiters {
		s.enqueue(t, `{"title":"a","tags":"x"}`)
	}
	all.Wait()
	equal(t, "jobs", len(seen), waiters)
}

func TestDrainEndsLongPollsForJobs(t *testing.T) {
	t.Parallel()
	s := serve(t)
	answers := make(chan answered, 1)
	go func() { answers <- s.call(t, "GET", "/events/subscribe?tags=x&worker_id=w:1&wait=60", nil) }()
	s.waitingForJobs(t, 1)
	s.server.Drain()
	await.Value(t, "the answer", answers).want(t, 204)
	refused := s.call(t, "GET", "/events/subscribe?tags=x&worker_id=w:1&wait=60", nil)
	refused.wantProblem(t, 503, "stopping")
	equal(t, "Retry-After", refused.header.Get("Retry-After"), "1")
	s.enqueue(t, `{"title":"a","tags":"x"}`)
	s.call(t, "GET", "/events/subscribe?tags=x&worker_id=w:1", nil).want(t, 200)
}

// A request whose client has disconnected does not claim the next job.
func TestLongPollsForJobsEndWithTheirClients(t *testing.T) {
	t.Parallel()
	s := serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		r, _ := http.NewRequestWithContext(ctx, "GET", s.url+"/events/subscribe?tags=x&worker_id=w:1&wait=60", nil)
		response, err := s.client.Do(r)
		if err == nil {
			response.Body.Close()
		}
		gone <- err
	}()
	s.waitingForJobs(t, 1)
	cancel()
	if err := await.Value(t, "the answer", gone); err == nil {
		t.Error("it was answered")
	}
	s.waitingForJobs(t, 0)
	s.enqueue(t, `{"title":"a","tags":"x"}`)
	equal(t, "attempt", s.take(t, "x", "w:2").Attempt, 1)
}

// A job whose worker disconnects during the claim is released.
func TestJobsOfDisconnectedWorkersAreReleased(t *testing.T) {
	t.Parallel()
	s := serve(t)
	s.enqueue(t, `{"title":"a","tags":"x"}`)
	holder, err := s.ph.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer holder.Rollback(t.Context())
	if _, err := holder.Exec(t.Context(), "lock table posthorn.running_jobs in exclusive mode"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	taken := make(chan *pg.ClaimedJob, 1)
	go func() {
		job, _ := s.server.tryClaimJob(ctx, jobClaim{"default", "w:1", []string{"x"}, time.Minute})
		taken <- job
	}()
	await.True(t, "the claim waits for the lock", func() bool { return s.isBlocked(t, holder) })
	cancel()
	if err := holder.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if job := await.Value(t, "the job", taken); job != nil {
		t.Errorf("it has the job: %+v", job)
	}
	equal(t, "log", actions(s.job(t, 1)), "PICKED RESET")
	equal(t, "attempt", s.take(t, "x", "w:2").Attempt, 2)
}

// isBlocked tells whether a statement waits for the locks of a transaction.
func (s *served) isBlocked(t *testing.T, holder pgx.Tx) (blocked bool) {
	t.Helper()
	err := s.ph.Pool().QueryRow(t.Context(), "select exists (select from pg_stat_activity where $1 = any (pg_blocking_pids(pid)))",
		holder.Conn().PgConn().PID()).Scan(&blocked)
	if err != nil {
		t.Fatal(err)
	}
	return blocked
}

func TestWaitsAreBounded(t *testing.T) {
	t.Parallel()
	s := serve(t, Options{MaxWaits: 1})
	answers := make(chan answered, 1)
	go func() { answers <- s.call(t, "GET", "/events/subscribe?tags=x&worker_id=w:1&wait=60", nil) }()
	s.waitingForJobs(t, 1)
	s.call(t, "GET", "/events/subscribe?tags=x&worker_id=w:2&wait=60", nil).wantProblem(t, 503, "too many")
	s.enqueue(t, `{"title":"a","tags":"x"}`)
	await.Value(t, "the answer", answers).want(t, 200)
}
