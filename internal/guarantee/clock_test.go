package guarantee

import (
	"testing"
	"time"
)

// Times that were recorded while the clock was an hour ahead stay as they are after it was
// set back. Nothing is lost or handed out twice, and events that are published then do not wait.
func TestTimesAreKeptWhenTheClockIsSetBack(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	failed, leased := s.publish(), s.publish()
	running, waiting := s.job("{x}"), s.job("{y}")
	s.turnClock(time.Hour)
	s.settle(s.claim(1), failure{Event: failed, RetryIn: "10 seconds"})
	lost := s.claim(1)
	wantEvents(t, lost.Events, leased)
	equal(t, "taken", s.claimJobs("w", "{x}", 1), []int64{running})
	equal(t, "taken", s.claimJobs("w", "{y}", 1), []int64{waiting})
	s.exec("select posthorn.fail_job($1, 'w', 'no')", waiting)

	s.turnClock(2 * time.Minute)
	s.lookAgain()
	next := s.publish()
	wantEvents(t, s.drain(), next)
	equal(t, "jobs before their time", s.claimJobs("other", "{x,y}", 5), []int64{})

	s.turnClock(time.Hour + 10*time.Minute)
	s.lookAgain()
	wantEvents(t, s.drain(), leased, failed)
	wantEvents(t, s.claimJobs("other", "{x,y}", 5), running, waiting)
	s.refused("PH003", "select posthorn.settle($1, $2)", lost.ID, lost.Attempt)
}

// A worker that lives sets its lease right when the clock was set back, and a retry of a job
// goes on at once.
func TestLeasesAreSetRightAfterTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	event := s.publish()
	running, waiting := s.job("{x}"), s.job("{y}")
	s.turnClock(time.Hour)
	l := s.claim(1)
	equal(t, "taken", s.claimJobs("w", "{x}", 1), []int64{running})
	equal(t, "taken", s.claimJobs("w", "{y}", 1), []int64{waiting})
	s.exec("select posthorn.fail_job($1, 'w', 'no')", waiting)

	s.turnClock(0)
	s.exec("select posthorn.extend($1, $2)", l.ID, l.Attempt)
	equal(t, "extended", column[int64](s, "select posthorn.heartbeat_jobs('w', array[$1::bigint])", running), []int64{running})
	s.exec("select posthorn.reset_job($1)", waiting)
	equal(t, "retried at once", s.claimJobs("other", "{y}", 1), []int64{waiting})

	s.turnClock(6 * time.Minute) // a job's lease is five minutes long
	s.lookAgain()
	wantEvents(t, s.drain(), event)
	equal(t, "taken over", s.claimJobs("other", "{x}", 1), []int64{running})
}

// A clock may be set while a claim runs: posthorntest does it. The claim has one time, so a
// retry that is due only by the new one is not taken under a lease that is over by then.
func TestClaimHasOneTime(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"order": "key"}`)
	event := s.publishKey("a")
	s.settle(s.claim(1), failure{Event: event, RetryIn: "1 hour"})
	holder, claimer := s.another(), s.another()
	holder.exec("begin; lock posthorn.this_life") // which a claim reads after the clock
	claimed := claimer.background("select posthorn.take(id, 'w', 10, '1 minute', gen_random_uuid()) from posthorn.groups")
	s.awaitBlocked(claimer)
	s.turnClock(2 * time.Hour)
	holder.exec("commit")
	if err := claimed(); err != nil {
		t.Fatal(err)
	}
	equal(t, "leases that are over", value[int](s, "select count(*) from posthorn.leases where until <= posthorn.now()"), 0)
}
