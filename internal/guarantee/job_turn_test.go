package guarantee

import (
	"testing"
	"time"
)

const (
	turnClaim = 400 // the jobs of a claim: so many that it remembers where it ended
	claimMany = "select count(*) from posthorn.claim_jobs('default', 'w', '{t}', $1)"
	entriesOf = "select posthorn.entries_read('ready_jobs_pkey')"
)

// enqueueMany enqueues jobs while another transaction holds its snapshot, so that no row can be removed. Looks from the
// beginning, which are rare, are left out.
func (s *session) enqueueMany(n int) {
	holder := s.another()
	holder.exec("begin isolation level repeatable read; select count(*) from posthorn.ready_jobs")
	s.exec(`select count(*) from posthorn.enqueue_batch('default', array_fill('j'::text, array[$1::int]),
		array_fill('{}'::json, array[$1::int]), array_fill('{t}'::text, array[$1::int]))`, n)
	s.turnClock(time.Minute)
}

func (s *session) claimMany(n int) (claimed int) {
	claimed = value[int](s, claimMany, n)
	s.exec("update posthorn.job_hints set until = clock_timestamp() + interval '1 hour'")
	return claimed
}

// The jobs that others have just taken stay in the index while any snapshot may see them. A claim in its turn begins behind
// them.
func TestClaimsReadAboutAsManyJobsAsTheyTake(t *testing.T) {
	t.Parallel()
	s := database(t)
	const claims = 10
	s.enqueueMany(claims * turnClaim)
	var read int64
	for range claims {
		s.exec("begin")
		before := value[int64](s, entriesOf)
		equal(t, "claimed jobs", s.claimMany(turnClaim), turnClaim)
		read += value[int64](s, entriesOf) - before
		s.exec("commit")
	}
	if read > 2*claims*turnClaim {
		t.Errorf("%d entries of the index are read for %d jobs", read, claims*turnClaim)
	}
}

// A claim remembers no place behind a job that another transaction has locked, or has taken, and may give back.
func TestClaimsRememberNoPlaceBehindJobsOfOthers(t *testing.T) {
	t.Parallel()
	for name, hold := range map[string]string{
		"locked": "select job from posthorn.ready_jobs order by rank, turn, job limit 1 for update",
		"taken":  "select id from posthorn.claim_jobs('default', 'other', '{t}', 1)",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.enqueueMany(4 * turnClaim)
			equal(t, "claimed jobs", s.claimMany(turnClaim), turnClaim)
			other := s.another()
			other.exec("begin")
			job := value[int64](other, hold)
			equal(t, "claimed jobs beside", s.claimMany(turnClaim), turnClaim)
			other.exec("rollback")
			equal(t, "the next job", value[int64](s, "select id from posthorn.claim_jobs('default', 'w', '{t}', 1)"), job)
		})
	}
}

// A transaction of a caller may keep the turn of its claim for long. Claims of others go on, and wait for it once only.
func TestClaimsDoNotWaitForLongTransactions(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.enqueueMany(10 * turnClaim)
	other := s.another()
	other.exec("begin")
	equal(t, "claimed jobs", other.claimMany(turnClaim), turnClaim)
	holder := value[string](other, "select virtualtransaction from pg_locks where locktype = 'advisory' and pid = pg_backend_pid() limit 1")
	for range 2 {
		equal(t, "claimed jobs beside", value[int](s, claimMany, turnClaim), turnClaim)
		equal(t, "the transaction for which claims do not wait", value[string](s, "select current_setting('posthorn.slow_claim')"), holder)
	}
	other.exec("commit")
	equal(t, "jobs of both", value[int](s, "select count(*) from posthorn.running_jobs"), 3*turnClaim)
}
