package guarantee

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const awaitPayment = "select coalesce((w).event_id, 0) from posthorn.await_event($1, 'w', 'paid', 'payment.settled', 'order-7', '1 day') w"

// awaits claims a job that waits for the payment of order 7.
func (s *session) awaits() (job int64) {
	s.t.Helper()
	job = s.job("{x}")
	s.claimJobs("w", "{x}", 1)
	equal(s.t, "an event has come", value[int64](s, awaitPayment, job), 0)
	equal(s.t, "status", value[string](s, "select posthorn.job_status($1)", job), "PENDING")
	return job
}

func (s *session) pay(key string) int64 {
	s.t.Helper()
	return value[int64](s, `select posthorn.publish('default', 'payment.settled', '{"sum": 3}', key => $1)`, key)
}

// wake looks for events that jobs wait for, as upkeep does.
func (s *session) wake() {
	s.t.Helper()
	s.exec("update posthorn.await_places set at = at - interval '1 minute'") // otherwise this is too soon after the last look
	s.exec("select posthorn.wake_jobs()")
}

// wantAwake wakes jobs, and wants these to be ready then.
func (s *session) wantAwake(when string, jobs ...int64) {
	s.t.Helper()
	s.wake()
	equal(s.t, when, column[int64](s, "select job from posthorn.ready_jobs order by job"), append([]int64{}, jobs...))
}

// A job that waits for an event goes on when the event comes, and gets it; also a later
// attempt gets it.
func TestJobAwaitsEvent(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.pay("order-7") // before the job
	job := s.awaits()
	s.wantAwake("awake before the event")
	s.pay("order-8")
	s.exec("select posthorn.publish('default', 'payment.begun', key => 'order-7')")
	s.wantAwake("awake after other events")
	event := s.pay("order-7")
	s.pay("order-7")
	s.wantAwake("awake", job)
	for range 2 {
		s.claimJobs("w", "{x}", 1)
		equal(t, "event", value[int64](s, awaitPayment, job), event)
		equal(t, "payload", value[string](s, "select (w).payload->>'sum' from posthorn.await_event($1, 'w', 'paid', 'payment.settled', 'order-7', '1 day') w", job), "3")
		s.exec("select posthorn.reset_job($1)", job)
	}
	equal(t, "rows that are left", value[int](s, "select (select count(*) from posthorn.job_awaits) + (select count(*) from posthorn.awaited_events)"), 0)
}

// An event that was published between the enqueueing of the job and its wait is found at once.
func TestAwaitFindsEarlierEvent(t *testing.T) {
	t.Parallel()
	s := database(t)
	job := s.job("{x}")
	event := s.pay("order-7")
	s.pay("order-7")
	s.claimJobs("w", "{x}", 1)
	equal(t, "event", value[int64](s, awaitPayment, job), event)
	equal(t, "status", value[string](s, "select posthorn.job_status($1)", job), "PROCESSING")
}

// An event that commits late is found, wherever the look for it stands: when the wait begins, and
// after looks at the news of the log.
func TestAwaitFindsLateEvent(t *testing.T) {
	t.Parallel()
	for looks := range 3 {
		t.Run(fmt.Sprint(looks, " looks before"), func(t *testing.T) {
			t.Parallel()
			s := database(t)
			first := s.job("{y}") // waits so that there is a place
			s.claimJobs("w", "{y}", 1)
			s.exec("select posthorn.await_event($1, 'w', 'paid', 'payment.settled', 'order-1', '1 day')", first)
			s.wake()
			job := s.job("{x}")
			late := s.another()
			late.exec("begin")
			event := late.pay("order-7")
			s.claimJobs("w", "{x}", 1)
			equal(t, "an event has come", value[int64](s, awaitPayment, job), 0)
			for range looks {
				s.pay("order-9")
				s.wantAwake("awake before the commit")
			}
			late.exec("commit")
			s.wantAwake("awake", job)
			s.claimJobs("w", "{x}", 1)
			equal(t, "event", value[int64](s, awaitPayment, job), event)
		})
	}
}

// A wait that commits after a look at the log misses no event that the look has passed.
func TestLateAwaitFindsEvent(t *testing.T) {
	t.Parallel()
	s := database(t)
	other := s.another()
	s.awaitsAlso("order-1")
	s.wake()
	job := s.job("{x}")
	s.claimJobs("w", "{x}", 1)
	s.exec("begin")
	equal(t, "an event has come", value[int64](s, awaitPayment, job), 0)
	event := other.pay("order-7")
	other.wantAwake("awake before the wait is known")
	s.exec("commit")
	s.wantAwake("awake", job)
	s.claimJobs("w", "{x}", 1)
	equal(t, "event", value[int64](s, awaitPayment, job), event)
}

// awaitsAlso lets another job wait, for an event with a key.
func (s *session) awaitsAlso(key string) {
	s.t.Helper()
	job := s.job("{y}")
	s.claimJobs("w", "{y}", 1)
	s.exec("select posthorn.await_event($1, 'w', 'paid', 'payment.settled', $2, '1 day')", job, key)
}

// A job goes on after the timeout, and knows that the event has not come; one that came in time and
// was not yet noticed counts.
func TestAwaitTimesOut(t *testing.T) {
	t.Parallel()
	for _, comes := range []bool{false, true} {
		t.Run(fmt.Sprint("event comes: ", comes), func(t *testing.T) {
			t.Parallel()
			s := database(t)
			job := s.awaits()
			s.wake()
			event := int64(0)
			if comes {
				event = s.pay("order-7")
			}
			s.turnClock(25 * time.Hour)
			s.exec("select posthorn.promote_jobs()")
			for range 2 {
				s.claimJobs("w", "{x}", 1)
				equal(t, "event", value[int64](s, awaitPayment, job), event)
				equal(t, "timed out", value[bool](s, "select (w).timed_out from posthorn.await_event($1, 'w', 'paid', 'payment.settled', 'order-7', '1 day') w", job), !comes)
				s.exec("select posthorn.reset_job($1)", job)
			}
			equal(t, "waits", value[int](s, "select count(*) from posthorn.job_awaits"), 0)
		})
	}
}

// Where the log has many events since the job was enqueued, upkeep looks for the event, in parts.
func TestAwaitLooksBackInParts(t *testing.T) {
	t.Parallel()
	for _, position := range []int{1, 149_999} {
		t.Run(fmt.Sprint("event ", position), func(t *testing.T) {
			t.Parallel()
			s := database(t)
			job := s.job("{x}")
			s.exec(`insert into posthorn.events (namespace_id, stream_id, type, key, payload)
				select 1, 1, 'payment.settled', case when i = $1 then 'order-7' else 'order-' || i + 10 end, '{}' from generate_series(1, 150000) i`, position)
			event := value[int64](s, "select id from posthorn.events where key = 'order-7'")
			s.claimJobs("w", "{x}", 1)
			equal(t, "an event has come", value[int64](s, awaitPayment, job), 0)
			s.await("select coalesce(posthorn.wake_jobs(), 0) >= 0 and exists (select from posthorn.ready_jobs)")
			s.claimJobs("w", "{x}", 1)
			equal(t, "event", value[int64](s, awaitPayment, job), event)
		})
	}
}

// Upkeep does not wait for a transaction that changes a waiting job, and the event is not lost.
func TestAwaitedEventWaitsForNobody(t *testing.T) {
	t.Parallel()
	s := database(t)
	job := s.awaits()
	s.wake()
	changing := s.another()
	changing.exec("begin")
	changing.exec("select posthorn.change_job($1, priority => 3)", job)
	event := s.pay("order-7")
	s.exec("set lock_timeout = '5s'")
	s.wantAwake("awake while the job is being changed")
	changing.exec("commit")
	s.wantAwake("awake", job)
	s.claimJobs("w", "{x}", 1)
	equal(t, "event", value[int64](s, awaitPayment, job), event)
}

// A name stands for one step, sleep or wait. Arguments that cannot be are refused, and change nothing.
func TestAwaitRefuses(t *testing.T) {
	t.Parallel()
	s := database(t)
	job := s.job("{x}")
	s.claimJobs("w", "{x}", 1)
	const await = "select posthorn.await_event($1, 'w', $2, $3, $4, $5::text::interval)"
	s.refused("PH004", await, job, "paid", "", "k", "1 day")
	s.refused("PH004", await, job, "paid", "t", nil, "1 day")
	s.refused("PH004", await, job, "paid", "t", "k", "-1 day")
	s.refused("PH004", await, job, "", "t", "k", "1 day")
	s.exec("select posthorn.save_step($1, 'w', 'charge', '1')", job)
	s.refused("PH002", await, job, "charge", "t", "k", "1 day")
	s.exec(await, job, "paid", "t", "k", "1 day")
	s.refused("PH003", await, job, "other", "t", "k", "1 day") // the attempt has ended
	s.exec("select posthorn.reset_job($1)", job)
	s.claimJobs("w", "{x}", 1)
	if err := s.refused("PH002", await, job, "paid", "t", "another", "1 day"); !strings.HasSuffix(err.Message, "is a wait for t") { // not of which key
		t.Errorf("the error is %q", err.Message)
	}
	s.refused("PH002", "select posthorn.save_step($1, 'w', 'paid', '1')", job)
	s.refused("PH002", "select posthorn.sleep_job($1, 'w', 'paid', '1 day')", job)
	s.exec("select posthorn.cancel_job($1)", job)
	equal(t, "waits of a job that has ended", value[int](s, "select count(*) from posthorn.job_awaits"), 0)
}

// A worker whose answer was lost asks again, and gets it.
func TestAwaitIsRepeated(t *testing.T) {
	t.Parallel()
	s := database(t)
	job := s.awaits()
	const until = "select (w).waits_until from posthorn.await_event($1, 'w', 'paid', 'payment.settled', 'order-7', '1 day', attempt => 1) w"
	equal(t, "the same end", value[time.Time](s, until, job), value[time.Time](s, until, job))
	equal(t, "attempts", value[int](s, "select count(*) from posthorn.job_log where event_id = $1 and action = 'SNOOZED'", job), 1)
}

// Events of streams that are hidden from a worker do not count for its wait.
func TestAwaitDoesNotSeeHiddenStreams(t *testing.T) {
	t.Parallel()
	s := database(t)
	const await = `select coalesce((w).event_id, 0) from posthorn.await_event($1, 'w', 'paid', 'payment.settled', 'order-7', '1 day',
		hidden_streams => '{payroll}') w`
	const pay = "select posthorn.publish('default', 'payment.settled', key => 'order-7', stream => $1)"
	job := s.job("{x}")
	s.exec(pay, "payroll")
	s.claimJobs("w", "{x}", 1)
	equal(t, "an event has come", value[int64](s, await, job), 0)
	s.exec(pay, "payroll")
	s.wantAwake("awake after a hidden event")
	event := value[int64](s, pay, "default")
	s.wantAwake("awake", job)
	s.claimJobs("w", "{x}", 1)
	equal(t, "event", value[int64](s, await, job), event)
}

// A look at the news that finds nothing writes nothing.
func TestIdleWaitsWriteNothing(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.awaits()
	s.wake()
	places := value[int](s, "select max(n) from posthorn.await_places")
	s.wake()
	equal(t, "place", value[int](s, "select max(n) from posthorn.await_places"), places)
}

// An event is found whose transaction began before a wait and ended after it, also if the wait commits
// only after a look at the log that saw the event.
func TestLateAwaitFindsLateEvent(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.awaitsAlso("order-1")
	s.wake()
	job := s.job("{x}")
	s.claimJobs("w", "{x}", 1)
	publisher, another := s.another(), s.another()
	s.exec("update posthorn.await_places set at = at - interval '1 minute'") // now, so that no transaction ends before the look
	publisher.exec("begin")
	event := publisher.pay("order-7")
	another.exec("select pg_current_xact_id()") // ends, with a higher xid
	s.exec("begin")
	equal(t, "an event has come", value[int64](s, awaitPayment, job), 0)
	publisher.exec("commit")
	another.exec("select posthorn.wake_jobs()")
	s.exec("commit")
	s.wantAwake("awake", job)
	s.claimJobs("w", "{x}", 1)
	equal(t, "event", value[int64](s, awaitPayment, job), event)
}

// A job may have waits for one event under two names, of which an earlier attempt has left one behind.
func TestJobAwaitsAnEventTwice(t *testing.T) {
	t.Parallel()
	s := database(t)
	job := s.awaits()
	s.exec("select posthorn.change_job($1, run_at => posthorn.now())", job)
	s.claimJobs("w", "{x}", 1)
	s.exec("select posthorn.await_event($1, 'w', 'settled', 'payment.settled', 'order-7', '1 day')", job)
	s.pay("order-7")
	s.wantAwake("awake", job)
}

// A job that has ended waits for nothing.
func TestEndedJobAwaitsNothing(t *testing.T) {
	t.Parallel()
	for _, end := range []string{"select posthorn.complete_job($1, 'w')", "select posthorn.complete_jobs('w', array[$1::bigint])", "select posthorn.fail_job($1, 'w', 'no', permanent => true)"} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			job := s.awaits()
			s.exec("select posthorn.reset_job($1)", job)
			s.claimJobs("w", "{x}", 1)
			s.exec(end, job)
			equal(t, "waits", value[int](s, "select count(*) from posthorn.job_awaits"), 0)
		})
	}
}

// After a restore into another cluster, waits get the events from before and after it, and time out.
func TestAwaitSurvivesRebase(t *testing.T) {
	t.Parallel()
	for name, events := range map[string]func(s *session, rebase func()) int64{
		"event before": func(s *session, rebase func()) int64 { e := s.pay("order-7"); rebase(); return e },
		"event after":  func(s *session, rebase func()) int64 { rebase(); return s.pay("order-7") },
		"no event":     func(_ *session, rebase func()) int64 { rebase(); return 0 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			job := s.awaits()
			s.wake()
			event := events(s, func() { s.exec("select posthorn.rebase(true)") })
			s.wake()
			if event == 0 {
				s.turnClock(25 * time.Hour)
				s.exec("select posthorn.promote_jobs()")
			}
			s.wantAwake("awake", job)
			s.claimJobs("w", "{x}", 1)
			equal(t, "event", value[int64](s, awaitPayment, job), event)
			equal(t, "status", value[string](s, "select posthorn.job_status($1)", job), "PROCESSING")
		})
	}
}

// A wait ends in time although the ids of events have moved on by much, and no event has come since.
func TestAwaitTimesOutBehindAGapOfIDs(t *testing.T) {
	t.Parallel()
	s := database(t)
	job := s.awaits()
	s.wake()
	s.exec("select setval('posthorn.event_id', 1000000000000)")
	s.turnClock(25 * time.Hour)
	s.exec("select posthorn.promote_jobs()")
	s.wantAwake("awake", job)
	s.claimJobs("w", "{x}", 1)
	equal(t, "event", value[int64](s, awaitPayment, job), 0)
	equal(t, "status", value[string](s, "select posthorn.job_status($1)", job), "PROCESSING")
}

// A client that hangs in the middle of a look at the log, or of a wait, keeps nobody waiting.
func TestLookForAwaitedEventsWaitsForNobody(t *testing.T) {
	t.Parallel()
	for name, hang := range map[string]func(s *session, job int64){
		"in a look": func(s *session, _ int64) { s.exec("select posthorn.wake_jobs()") },
		"in a wait": func(s *session, job int64) {
			s.exec("select posthorn.await_event($1, 'w', 'paid', 'payment.settled', 'order-7', '1 day')", job)
		},
		"in a cancellation": func(s *session, job int64) { s.exec("select posthorn.cancel_job($1)", job) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			hanging := s.another()
			job := s.awaits()
			s.awaitsAlso("order-8")
			s.wake()
			s.exec("select posthorn.change_job($1, run_at => posthorn.now())", job)
			s.claimJobs("w", "{x}", 1)
			s.pay("order-7")
			hanging.exec("begin")
			hang(hanging, job)
			s.pay("order-7")
			s.exec("set lock_timeout = '5s'")
			s.wake()
			equal(t, "upkeep", value[string](s, "select coalesce(posthorn.tend()->>'errors', 'no errors')"), "no errors")
			hanging.exec("commit")
			s.pay("order-8")
			s.await("select coalesce(posthorn.wake_jobs(), 0) >= 0 and exists (select from posthorn.ready_jobs where tag = 'y')")
		})
	}
}

// Events are not among what a claim brings, and so do not count against the limit of its results.
func TestLargeAwaitedEventsDoNotCount(t *testing.T) {
	t.Parallel()
	s := database(t)
	job := s.job("{x}")
	s.claimJobs("w", "{x}", 1)
	for i := range 8 {
		s.exec("select posthorn.publish('default', 't', to_json((select string_agg(md5($1 || '-' || j), '') from generate_series(1, 24000) j)), key => $1)", fmt.Sprint(i))
		s.exec("select posthorn.await_event($1, 'w', 'wait ' || $2, 't', $2, '1 day')", job, fmt.Sprint(i))
	}
	s.exec("select posthorn.save_step($1, 'w', 'charge', '1')", job)
}

// Events that were noted for waits which had just ended are forgotten, so that they do not take the
// room of others in a look.
func TestEventsOfEndedWaitsAreForgotten(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("insert into posthorn.awaited_events select -i, 'paid', 1 from generate_series(1, 1000) i")
	job := s.awaits()
	s.pay("order-7")
	s.wake()
	s.wantAwake("awake", job)
	equal(t, "rows that are left", value[int](s, "select count(*) from posthorn.awaited_events"), 0)
}
