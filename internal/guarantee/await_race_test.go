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

// Looks at the news that overlap miss no event for a job that the first of them has locked.
func TestOverlappingLooksMissNoEvent(t *testing.T) {
	t.Parallel()
	for name, play := range map[string]func(s, first, second *session) (event int64){
		"the first look locks the wait": func(s, first, second *session) int64 {
			first.exec("begin")
			first.exec("select posthorn.wake_jobs()")
			event := s.pay("order-7")
			second.exec("select posthorn.wake_jobs()")
			first.exec("commit")
			return event
		},
		"the event is published before": func(s, first, second *session) int64 {
			publisher := s.another()
			publisher.exec("begin")
			event := publisher.pay("order-7")
			first.exec("begin")
			first.exec("select posthorn.wake_jobs()")
			publisher.exec("commit")
			second.exec("select posthorn.wake_jobs()")
			first.exec("commit")
			return event
		},
		"the first look is rolled back": func(s, first, second *session) int64 {
			first.exec("begin")
			first.exec("select posthorn.wake_jobs()")
			event := s.pay("order-7")
			second.exec("select posthorn.wake_jobs()")
			first.exec("rollback")
			return event
		},
		"the wait is an old one": func(s, first, second *session) int64 {
			s.exec("select setval('posthorn.event_id', 200000)") // so the first look leaves it to look_back
			first.exec("begin")
			first.exec("select posthorn.wake_jobs()")
			event := s.pay("order-7")
			s.awaitsAlso("order-1")
			second.exec("select posthorn.wake_jobs()")
			first.exec("commit")
			return event
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			job := s.awaits()
			event := play(s, s.another(), s.another())
			s.wake()
			s.wantAwake("awake", job)
			s.claimJobs("w", "{x}", 1)
			equal(t, "event", value[int64](s, awaitPayment, job), event)
		})
	}
}

// A look that found no waits, and is late to forget how far the log was looked at, does not forget what a later
// look has noted for a new wait.
func TestLateLookForgetsNoPlace(t *testing.T) {
	t.Parallel()
	s := database(t)
	blocks, late := s.another(), s.another()
	blocks.exec("begin")
	blocks.exec("lock table posthorn.await_places in access exclusive mode")
	woken := late.background("select posthorn.wake_jobs()") // no job waits
	s.awaitBlocked(late)
	job := s.awaits()
	blocks.exec("select posthorn.wake_jobs()")
	blocks.exec("commit")
	if err := woken(); err != nil {
		t.Fatal(err)
	}
	event := s.pay("order-7")
	s.wantAwake("awake", job)
	s.claimJobs("w", "{x}", 1)
	equal(t, "event", value[int64](s, awaitPayment, job), event)
}

// A wait takes the first event, also if a later one is found while older events are still being looked at, in parts.
func TestAwaitGetsTheFirstEvent(t *testing.T) {
	t.Parallel()
	const jump = "select setval('posthorn.event_id', (select last_value from posthorn.event_id) + 110000)" // as a crash does, and a log with many events
	for name, c := range map[string]struct {
		publish func(s *session) (first int64)
		looks   int
		asks    bool // the job asks again in the middle
	}{
		"it is in the first part":  {func(s *session) int64 { e := s.pay("order-7"); s.exec(jump); s.pay("order-9"); return e }, 1, false},
		"it is in the second part": {func(s *session) int64 { s.pay("order-9"); s.exec(jump); return s.pay("order-7") }, 2, false},
		"the job asks before":      {func(s *session) int64 { s.pay("order-9"); s.exec(jump); return s.pay("order-7") }, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			job := s.job("{x}")
			first := c.publish(s)
			s.claimJobs("w", "{x}", 1)
			equal(t, "an event has come", value[int64](s, awaitPayment, job), 0)
			s.pay("order-7")
			for range c.looks - 1 {
				s.wantAwake("awake before all older events have been looked at")
			}
			if c.asks {
				s.exec("select posthorn.change_job($1, run_at => posthorn.now())", job)
				equal(t, "taken", s.claimJobs("w", "{x}", 1), []int64{job})
				equal(t, "an event before older ones have been looked at", value[int64](s, awaitPayment, job), 0)
			}
			s.wantAwake("awake", job)
			s.claimJobs("w", "{x}", 1)
			equal(t, "event", value[int64](s, awaitPayment, job), first)
		})
	}
}
