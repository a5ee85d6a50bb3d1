package guarantee

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// Keys take turns also where limits of a pattern hold jobs of each of them back: whether a claim takes one job or many, and
// whichever key was enqueued first.
func TestKeysTakeTurnsUnderLimitsOfAPattern(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		most, workers, batch int
		tags                 string
	}{
		"room for one key less":           {most: 2, workers: 10, batch: 1},
		"of many":                         {most: 2, workers: 10, batch: 10},
		"of some":                         {most: 3, workers: 10, batch: 4},
		"one of each key":                 {most: 1, workers: 4, batch: 1},
		"more than come at once":          {most: 15, workers: 60, batch: 60},
		"the tag of the key is the first": {most: 2, workers: 10, batch: 3, tags: "{%s,work}"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.exec("select posthorn.set_job_limit('default', 'tenant:*', $1)", c.most)
			tags := c.tags
			if tags == "" {
				tags = "{work,%s}"
			}
			const keys, of = 6, 120
			for key := range keys {
				s.exec("select posthorn.enqueue('default', $1, tags => format($2::text, 'tenant:' || $1)::text[], fair_key => $1) from generate_series(1, $3::int)",
					fmt.Sprint(key), tags, of)
			}
			for range 3 { // all that the limits allow run, and claims have passed over the others
				s.claimJobs("w", "{work}", 200)
			}
			running := s.claimedBy("w")
			s.exec("select posthorn.complete_jobs('w', $1)", running)
			count := map[string]int{}
			var taken []string
			for running = nil; len(taken) < of; {
				for len(running) < c.workers {
					ids := s.claimJobs("w", "{work}", min(c.batch, c.workers-len(running)))
					if len(ids) == 0 {
						t.Fatalf("no jobs came after %d", len(taken))
					}
					running = append(running, ids...)
					for _, key := range column[string](s, "select title from posthorn.jobs j join unnest($1::bigint[]) with ordinality u (id, n) on j.id = u.id order by n", ids) {
						taken = append(taken, key)
						count[key]++
					}
				}
				done := running[:c.batch]
				running = slices.Clone(running[c.batch:])
				s.exec("select posthorn.complete_jobs('w', $1)", done)
			}
			for key := range keys {
				if n := count[fmt.Sprint(key)]; n < len(taken)/keys-c.most || n > len(taken)/keys+c.most {
					t.Errorf("key %d got %d of %d: %s", key, n, len(taken), strings.Join(taken, " "))
				}
			}
		})
	}
}

// claimedBy returns the jobs that a worker has.
func (s *session) claimedBy(worker string) []int64 {
	s.t.Helper()
	return column[int64](s, "select job from posthorn.running_jobs where worker = $1 order by job", worker)
}

// Jobs that a limit holds back do not keep the job of a new key behind all of them.
func TestHeldBackJobsDoNotMoveTheClock(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.set_job_limit('default', 'tenant:*', 2)")
	enqueue := func(key string, n int) {
		s.exec("select posthorn.enqueue('default', $1, tags => array['work', 'tenant:' || $1], fair_key => $1) from generate_series(1, $2::int)", key, n)
	}
	enqueue("a", 100)
	running := s.claimJobs("w", "{work}", 10)
	equal(t, "running", len(running), 2)
	for range 8 {
		s.claimJobs("w", "{work}", 100) // all others are parked
	}
	enqueue("b", 2)
	s.exec("select posthorn.complete_jobs('w', $1)", running)
	equal(t, "next", s.claimKeys("{work}", 1)+" "+s.claimKeys("{work}", 1), "a b")
}

// Jobs of one key keep their order, also behind those of them that a limit holds back.
func TestKeyKeepsItsOrderUnderALimit(t *testing.T) {
	t.Parallel()
	for _, tags := range []string{"{work,tenant:a}", "{tenant:a,work}"} {
		s := database(t)
		s.exec("select posthorn.set_job_limit('default', 'tenant:*', 2)")
		enqueue := func(n int) {
			s.exec("select posthorn.enqueue('default', 'a', tags => $1::text::text[], fair_key => 'a') from generate_series(1, $2::int)", tags, n)
		}
		enqueue(40)
		running := s.claimJobs("w", "{work}", 10)
		for range 8 {
			s.claimJobs("w", "{work}", 100) // all others are parked
		}
		enqueue(5)
		taken := slices.Clone(running)
		for len(taken) < 45 {
			s.exec("select posthorn.complete_jobs('w', $1)", running)
			running = s.claimJobs("w", "{work}", 2)
			if len(running) == 0 {
				t.Fatalf("no jobs came after %v", taken)
			}
			taken = append(taken, running...)
		}
		equal(t, "in their order", slices.IsSorted(taken), true)
	}
}

// An attempt of a job with a limited tag begins when the job gets its place, not when the claim finds the job: before that
// the claim counts the others, and one of them may end meanwhile. In the log they would overlap.
func TestAttemptBeginsWithItsPlace(t *testing.T) {
	t.Parallel()
	for _, limit := range []string{"max_running => 1", "max_started => 1, period => '1 minute'"} {
		s := database(t)
		s.exec("select posthorn.set_job_limit('default', 'x', " + limit + ")")
		s.job("{x}")
		s.exec(`create or replace function posthorn.now() returns timestamptz language sql volatile parallel safe
			  return timestamptz '2030-01-01Z' + coalesce(nullif(current_setting('test.late', true), ''), '0')::interval;
			alter function posthorn.have_room(int, posthorn.tagged_jobs, timestamptz) rename to have_room_at_once;
			create function posthorn.have_room(ns int, limited posthorn.tagged_jobs, at timestamptz) returns boolean language plpgsql as $$
			begin
			  perform set_config('test.late', '5 seconds', false);
			  return posthorn.have_room_at_once(ns, limited, at);
			end $$`)
		equal(t, "taken", len(s.claimJobs("w", "{x}", 1)), 1)
		at := time.Date(2030, 1, 1, 0, 0, 5, 0, time.UTC)
		equal(t, "picked", value[time.Time](s, "select created_at from posthorn.job_log where action = 'PICKED'").UTC(), at)
		if strings.Contains(limit, "period") {
			equal(t, "started", value[time.Time](s, "select at from posthorn.job_starts").UTC(), at)
		}
	}
}
