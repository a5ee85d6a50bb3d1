package guarantee

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testsize"
)

// limitedTags are tags of which two jobs may run at once.
var limitedTags = []string{"a", "b", "c", "d", "e"}

// enqueueLimited enqueues jobs with one to three of the limited tags.
func (s *session) enqueueLimited(n int) {
	s.t.Helper()
	for _, tag := range limitedTags {
		s.exec("select posthorn.set_job_limit('default', $1, 2)", tag)
	}
	for range n {
		s.job("{"+strings.Join(someTags(), ",")+"}", "max_retries => 1000", "retry_delays => '{0}'")
	}
}

// someTags returns one to three of the limited tags in any order.
func someTags() []string {
	var tags []string
	for _, i := range rand.Perm(len(limitedTags))[:1+rand.IntN(3)] {
		tags = append(tags, limitedTags[i])
	}
	return tags
}

// endsOfJobs are all the ways in which a worker stops to have a job.
var endsOfJobs = []string{
	"select posthorn.complete_job($1, $2)",
	"select posthorn.complete_jobs($2, array[$1])",
	"select posthorn.fail_job($1, $2, 'no')",
	"select posthorn.fail_job($1, $2, 'no', permanent => true)",
	"select posthorn.snooze_job($1, $2, '0')",
	"select posthorn.release_jobs($2, array[$1])",
	"select posthorn.cancel_job($1)",
	"select posthorn.reset_job($1)",
	"update posthorn.running_jobs set lease_until = '-infinity' where job = $1 and worker = $2", // its worker is dead
}

// Claims and ends of jobs with several limited tags do not wait for each other in a
// circle, also where a transaction has several ends in any order, and enqueues. The limits
// hold, and all jobs end.
func TestLimitsOfManyTagsDoNotDeadlock(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.enqueueLimited(testsize.Of(100, 300))
	var over, stop atomic.Bool
	var errs sync.Map
	var workers sync.WaitGroup
	for i := range 8 {
		own, worker := s.another(), fmt.Sprint("w", i)
		tags := "{" + strings.Join(someTags(), ",") + "}"
		if i%2 == 0 {
			tags = "{a,b,c,d,e}"
		}
		workers.Go(func() {
			for !stop.Load() {
				if err := own.workOnLimited(worker, tags); err != nil {
					errs.Store(err.Error(), true)
				}
			}
		})
	}
	watcher := s.another()
	workers.Go(func() {
		for !stop.Load() {
			if value[int](watcher, `select coalesce(max(n), 0) from (
				select count(*) as n from posthorn.running_jobs r
				join posthorn.enqueued_jobs o on o.id = r.job, unnest(o.tags) t group by t) x`) > 2 {
				over.Store(true)
			}
		}
	})
	await.True(t, "all jobs have ended", func() bool {
		return value[bool](s, "select not exists (select from posthorn.jobs where finished_at is null)")
	})
	stop.Store(true)
	workers.Wait()
	errs.Range(func(err, _ any) bool { t.Error(err); return true })
	if over.Load() {
		t.Error("more jobs ran than a tag allows")
	}
	equal(t, "places of tags in use", value[int](s, "select count(*) from posthorn.running_tags"), 0)
	equal(t, "held back", value[int](s, "select count(*) from posthorn.parked_jobs"), 0)
}

// workOnLimited claims some jobs and ends them: each by itself, or all in one transaction
// that enqueues, too.
func (s *session) workOnLimited(worker, tags string) error {
	ctx := s.t.Context()
	rows, _ := s.conn.Query(ctx, "select id from posthorn.claim_jobs('default', $1, $2::text::text[], $3)", worker, tags, 1+rand.IntN(4))
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	var work strings.Builder
	for _, id := range ids {
		end := endsOfJobs[rand.IntN(len(endsOfJobs))]
		fmt.Fprintf(&work, strings.ReplaceAll(strings.ReplaceAll(end, "$1", "%[1]d"), "$2", "'%[2]s'")+";", id, worker)
	}
	if rand.IntN(2) == 0 {
		return s.each(strings.Split(work.String(), ";"))
	}
	_, err = s.conn.Exec(ctx, "begin;"+work.String()+"select posthorn.delete_job(posthorn.enqueue('default', 'a', tags => '{a,b}')); commit")
	return err
}

// each runs statements one by one.
func (s *session) each(statements []string) error {
	for _, sql := range statements {
		if _, err := s.conn.Exec(s.t.Context(), sql); err != nil {
			return err
		}
	}
	return nil
}
