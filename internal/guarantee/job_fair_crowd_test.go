package guarantee

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/internal/test/testsize"
)

// openPublishers enqueues about n jobs of a key from many transactions that are open at once; more are further arguments of
// enqueue. The transactions commit when the caller says so.
func (s *session) openPublishers(key string, open, n int, more ...string) (commit func()) {
	s.t.Helper()
	var publishers []*session
	for range open {
		p := s.another()
		p.exec("begin")
		p.enqueueFair(key, (n+open-1)/open, more...)
		publishers = append(publishers, p)
	}
	return func() {
		for _, p := range publishers {
			p.exec("commit")
		}
	}
}

// others returns further sessions.
func (s *session) others(n int) (all []*session) {
	for range n {
		all = append(all, s.another())
	}
	return all
}

// A key whose publishers are open at once gets its share, and no more: whether they commit before any job is taken or
// when jobs of other keys have gone by, however many a claim takes, and however many workers claim at once.
func TestFairTurnsHoldAgainstACrowd(t *testing.T) {
	t.Parallel()
	const others, taken = 9, 300
	for _, c := range []struct {
		weight, batch, workers int
		late                   bool
	}{
		{weight: 1, batch: 1, workers: 1},
		{weight: 1, batch: 7, workers: 1, late: true},
		{weight: 3, batch: 100, workers: 1},
		{weight: 1, batch: 3, workers: 8},
	} {
		for _, open := range testsize.Of([]int{1, 10}, []int{1, 10, 50, 200}) {
			t.Run(fmt.Sprintf("%d open, weight %d, %d claims of %d", open, c.weight, c.workers, c.batch), func(t *testing.T) {
				t.Parallel()
				s := database(t)
				commit := s.openPublishers("hog", open, taken+50, fmt.Sprintf("weight => %d", c.weight))
				if !c.late {
					commit()
				}
				for k := range others {
					s.enqueueFair(fmt.Sprintf("key%d", k), 2*taken/others)
				}
				if c.late {
					s.claimKeys("{x}", 90)
					commit()
				}
				count := map[string]int{}
				workers := s.others(c.workers)
				for n := 0; n < taken; {
					for _, w := range workers {
						w.exec("begin")
						for _, key := range strings.Fields(w.claimKeys("{x}", min(c.batch, taken-n))) {
							count[key]++
						}
						n += c.batch
						if n >= taken {
							break
						}
					}
					for _, w := range workers {
						w.exec("commit")
					}
				}
				for key, n := range count {
					due := float64(taken) / float64(others+c.weight)
					if key == "hog" {
						due *= float64(c.weight)
					}
					if float64(n) > 1.5*due || float64(n) < due/1.5 {
						t.Errorf("%s got %d of %d jobs, its share is %.0f: %v", key, n, taken, due, count)
					}
				}
				equal(t, "keys", len(count), others+1)
			})
		}
	}
}

// Turns that claims give keep the order of each publisher's jobs, and each job gets one once at most.
func TestCrowdKeepsTheOrderOfItsPublishers(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.enqueueFair("b", 40)
	var ids [][]int64
	var publishers []*session
	for range 5 {
		p := s.another()
		p.exec("begin")
		ids = append(ids, p.enqueueFair("hog", 20))
		publishers = append(publishers, p)
	}
	for _, p := range publishers {
		p.exec("commit")
	}
	ids = append(ids, s.enqueueFair("hog", 20))
	place := map[int64]int{}
	for n := 0; n < 160; n++ {
		taken := s.claimJobs("w", "{x}", 1)
		equal(t, "taken", len(taken), 1)
		place[taken[0]] = n
	}
	for _, of := range ids {
		for i := range of[1:] {
			if place[of[i]] > place[of[i+1]] {
				t.Errorf("job %d was taken after job %d of the same publisher", of[i], of[i+1])
			}
		}
	}
	for _, earlier := range slices.Concat(ids[:5]...) {
		if last := ids[5][0]; place[earlier] > place[last] {
			t.Errorf("job %d was taken after job %d, which was enqueued later", earlier, last)
		}
	}
	equal(t, "rows left", value[int](s, "select count(*) from posthorn.ready_jobs"), 0)
}

// Two claims that do not see each other give no turn twice, and none waits for the other, though a publisher commits
// between them whose jobs come first. Workers of other tags do not wait for their turn.
func TestClaimsGiveEachTurnOnce(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("set lock_timeout = '1ms'")
	late := s.openPublishers("hog", 1, 10)
	s.openPublishers("hog", 10, 400)()
	s.enqueueFair("b", 5)
	first := s.another()
	first.exec("begin")
	first.claimKeys("{x}", 1)
	late()
	s.claimKeys("{y,x}", 3)
	first.exec("commit")
	equal(t, "turns that were given twice", value[int](s, "select count(*) - count(distinct turn) from posthorn.ready_jobs where spread"), 0)
	equal(t, "given any", value[bool](s, "select count(*) > 20 from posthorn.ready_jobs where spread"), true)
}

// Jobs of a crowd are taken once each, also if they have several tags, unique keys or another priority, if some of them
// are cancelled, changed or given back, and if their tag has a limit.
func TestCrowdedJobsAreTakenOnce(t *testing.T) {
	t.Parallel()
	for _, limit := range []bool{false, true} {
		s := database(t)
		if limit {
			s.exec("select posthorn.set_job_limit('default', 'y', 4)")
		}
		s.enqueueFair("b", 10)
		for _, more := range []string{"tags => '{y,x}'", "tags => '{x,y}', unique_key => gen_random_uuid()::text", "tags => '{x}', priority => 1"} {
			var open []*session
			for range 5 {
				p := s.another()
				p.exec("begin")
				p.exec("select posthorn.enqueue('default', 'hog', fair_key => 'hog', " + more + ") from generate_series(1, 6)")
				open = append(open, p)
			}
			for _, p := range open {
				p.exec("commit")
			}
		}
		s.claimJobs("w", "{x}", 1)
		pending := column[int64](s, "select id from posthorn.jobs where status = 'PENDING' order by id")
		s.exec("select posthorn.cancel_job($1)", pending[20])
		s.exec("select posthorn.change_job($1, priority => 1)", pending[40])
		s.exec("select posthorn.delete_job($1)", pending[60])
		s.exec("select posthorn.release_jobs('w', array(select job from posthorn.running_jobs))")
		done := 0
		for {
			ids := s.claimJobs("w", "{x,y}", 3)
			if len(ids) == 0 {
				break
			}
			done += len(ids)
			s.exec("select posthorn.complete_jobs('w', $1)", ids)
		}
		equal(t, "taken", done, 10+90-2)
		equal(t, "rows left", value[int](s, "select (select count(*) from posthorn.ready_jobs) + (select count(*) from posthorn.parked_jobs)"), 0)
	}
}

// Jobs that were given back come next, also in a crowd.
func TestJobOfACrowdThatWasGivenBackIsNext(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.openPublishers("hog", 10, 40)()
	s.enqueueFair("b", 50)
	given := s.claimJobs("w", "{x}", 12)
	s.exec("select posthorn.release_jobs('w', $1::bigint[])", given)
	equal(t, "next", slices.Sorted(slices.Values(s.claimJobs("w", "{x}", 12))), slices.Sorted(slices.Values(given)))
}
