package guarantee

import "testing"

// A look at older events leaves out a wait that commits in its middle, and that wants events from
// before those it reads: the next look finds the event.
func TestLookBackLeavesOutAWaitThatCommitsInIt(t *testing.T) {
	t.Parallel()
	s := database(t)
	job := s.job("{x}")
	event := s.pay("order-7")
	s.exec("select setval('posthorn.event_id', 20000)") // so many events since are left to look_back
	s.awaitsAlso("order-1")
	waits, looks := s.another(), s.another()
	s.claimJobs("w", "{x}", 1)
	waits.exec("begin")
	waits.exec("lock table posthorn.events in access exclusive mode")
	equal(t, "an event has come", value[int64](waits, awaitPayment, job), 0)
	looked := looks.background("select posthorn.look_back()") // it has chosen from when on it reads events
	s.awaitBlocked(looks)
	waits.exec("commit")
	if err := looked(); err != nil {
		t.Fatal(err)
	}
	s.wantAwake("awake", job)
	s.claimJobs("w", "{x}", 1)
	equal(t, "event", value[int64](s, awaitPayment, job), event)
}

// The deletion of a job whose wait is just ending waits for that, and not in a circle with it.
func TestDeletionOfAJobWhoseWaitEnds(t *testing.T) {
	t.Parallel()
	s := database(t)
	job := s.awaits()
	s.exec("select posthorn.change_job($1, run_at => posthorn.now())", job) // so that both want its step
	s.pay("order-7")
	blocks, wakes, deletes := s.another(), s.another(), s.another()
	blocks.exec("begin")
	blocks.exec("lock table posthorn.stream_names in access exclusive mode") // wake_jobs reads it between the wait and its step
	woken := wakes.background("select posthorn.wake_jobs()")
	s.awaitBlocked(wakes)
	deleted := deletes.background("select posthorn.delete_job($1)", job)
	s.awaitBlocked(deletes)
	blocks.exec("rollback")
	for what, outcome := range map[string]func() error{"the look": woken, "the deletion": deleted} {
		if err := outcome(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	equal(t, "rows left", value[int](s, "select (select count(*) from posthorn.job_awaits) + (select count(*) from posthorn.saved_steps)"), 0)
}
