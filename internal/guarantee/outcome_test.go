package guarantee

import (
	"fmt"
	"testing"
	"time"
)

// outcomes returns the rows of an event in the test's group, as "state subscription
// attempts error reason node", with "-" for null.
func (s *session) outcomes(event int64) []string {
	s.t.Helper()
	return column[string](s, `
		select concat_ws(' ', state, coalesce(nullif(subscription, ''), '-'), coalesce(attempts::text, '-'),
			coalesce(error, '-'), coalesce(reason, '-'), coalesce(node, '-'))
		from posthorn.outcomes('default', $1) where group_name = $2`, event, group)
}

func (s *session) wantOutcome(event int64, want ...string) {
	s.t.Helper()
	equal(s.t, fmt.Sprintf("outcome of event %d", event), s.outcomes(event), want)
}

const (
	outcomePending    = "PENDING - 0 - - -"
	outcomeProcessing = "PROCESSING - 1 - - worker"
	outcomeCompleted  = "COMPLETED - - - - -"
	outcomePassedOver = "PASSED_OVER - 0 - - -"
)

// seed 002.16: an event that was not handed out yet.
//
// seed 002.1
func TestOutcomePending(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"none", "key", "stream", "total"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.define(`{"order": "` + order + `"}`)
			events := s.publishMany(5)
			s.wantOutcome(events[0], outcomePending)

			handed := s.claim(1).Events[0]
			for _, e := range events {
				if e == handed {
					s.wantOutcome(e, outcomeProcessing)
				} else {
					s.wantOutcome(e, outcomePending)
				}
			}
		})
	}
}

// seed 002.16: an event that was committed after the group had passed its id.
func TestOutcomeOfLateCommit(t *testing.T) {
	t.Parallel()
	slow, s, first, second := overtaken(t)
	s.refused("PH001", "select posthorn.outcomes('default', $1)", first)
	s.wantOutcome(second, outcomeCompleted)

	slow.exec("commit")
	s.wantOutcome(first, outcomePending)
	later := s.publish()
	l := s.claim(1)
	wantEvents(t, l.Events, first)
	s.wantOutcome(first, outcomeProcessing)
	s.wantOutcome(later, outcomePending)
	s.settle(l)
	s.wantOutcome(first, outcomeCompleted)
}

// Of several late events, some have been handed out to the group.
func TestOutcomeAmongLateCommits(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	slow := s.another()
	slow.exec("begin")
	late := slow.publishMany(3)
	s.publish()
	s.drain()
	slow.exec("commit")

	l := s.claim(2)
	wantEvents(t, l.Events, late[:2]...)
	s.wantOutcome(late[0], outcomeProcessing)
	s.wantOutcome(late[2], outcomePending)
	s.settle(l)
	s.wantOutcome(late[1], outcomeCompleted)
	s.wantOutcome(late[2], outcomePending)
}

// A lease is a window of ids: an event in the window that its snapshots exclude is
// not in the lease.
func TestOutcomeBesideAWindow(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	slow := s.another()
	first := s.publish()
	slow.exec("begin")
	late := slow.publish()
	last := s.publish()
	l := s.claim(10)
	wantEvents(t, l.Events, first, last)
	slow.exec("commit")

	s.wantOutcome(first, outcomeProcessing)
	s.wantOutcome(late, outcomePending)
	s.wantOutcome(last, outcomeProcessing)
	s.exec("update posthorn.leases set base = target") // as if all of it had been handed out before
	s.wantOutcome(first, outcomeCompleted)
}

// seed 002.16: in a lease, until it is settled or released.
//
// seed 002.2, 002.10
func TestOutcomeProcessing(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"none", "total"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.define(`{"order": "` + order + `"}`)
			event := s.publish()
			s.claim(1)
			s.expire()
			s.wantOutcome(event, outcomeProcessing) // not taken over yet
			l := s.claim(1)
			s.wantOutcome(event, "PROCESSING - 2 - - worker")
			s.release(l)
			s.wantOutcome(event, "PENDING - 1 - - -")
			s.settle(s.claim(1))
			s.wantOutcome(event, outcomeCompleted)
		})
	}
}

// seed 002.16, 002.21: transient failures are retried, only by the handlers that
// failed.
func TestOutcomeRetrying(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	event := s.publish()
	s.settle(s.claim(1), failure{Event: event, Error: "timeout", RetryIn: "1 hour"})
	s.wantOutcome(event, "RETRYING - 1 timeout - -")
	equal(t, "due in an hour", value[bool](s, `
		select due_at between posthorn.now() + interval '30 minutes' and posthorn.now() + interval '1 hour'
		from posthorn.outcomes('default', $1)`, event), true)

	s.turnClock(2 * time.Hour)
	l := s.claim(1)
	s.wantOutcome(event, "PROCESSING - 2 timeout - worker")
	s.release(l)
	s.wantOutcome(event, "RETRYING - 1 timeout - -")
	s.settle(s.claim(1))
	s.wantOutcome(event, outcomeCompleted)
}

// seed 002.11, 002.22, 002.24: some handlers failed permanently, the others are done.
func TestOutcomeCompletedWithErrors(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	event := s.publish()
	l := s.claim(1)
	s.exec("select posthorn.settle($1, $2, $3)", l.ID, l.Attempt, fmt.Sprintf(`[
		{"event": %d, "subscription": "charge", "error": "declined", "permanent": true},
		{"event": %[1]d, "subscription": "mail", "error": "timeout", "retry_in": "0"}]`, event))
	// The group has not finished: mail is still retried.
	s.wantOutcome(event, "RETRYING charge 1 declined Handler error worker", "RETRYING mail 1 timeout - -")

	s.settle(s.claim(1))
	s.wantOutcome(event, "COMPLETED_WITH_ERRORS charge 1 declined Handler error worker")
}

// seed 000.55, 002.16: the whole event failed permanently.
func TestOutcomeDead(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	event := s.bury("a")[0]
	s.wantOutcome(event, "DEAD - 1 declined Handler error worker")

	s.exec("select posthorn.redrive('default', $1)", group)
	s.wantOutcome(event, "RETRYING - 0 declined - -")
	s.drain()
	s.wantOutcome(event, outcomeCompleted)
}

// It failed permanently, and is ahead of the group again.
func TestOutcomeOfDeadLetterAfterSeek(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	event := s.bury("a")[0]
	s.exec("select posthorn.seek('default', $1, '-infinity')", group)
	s.wantOutcome(event, "PENDING - 1 declined Handler error worker", outcomePending)
	s.drain()
	s.wantOutcome(event, "DEAD - 1 declined Handler error worker")
}

// Retention has dropped the event; its dead letter has kept it.
func TestOutcomeAfterThePartitionIsGone(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.keepADay()
	s.define("{}")
	s.exec("select posthorn.define_group('default', 'well')")
	s.exec("select posthorn.define_group('default', 'unread')")
	s.exec("update posthorn.config set value = '30 days' where key = 'retention_hard_limit'")
	event := s.bury("a")[0]
	s.drainGroup("well")
	s.drain()
	s.turnClock(longAfter)
	s.maintain()
	if s.inLog(event) {
		t.Fatal("the event still exists: this tests nothing")
	}
	s.exec("select posthorn.define_group('default', 'young')")
	all := "select group_name || ' ' || state from posthorn.outcomes('default', $1)"

	equal(t, "outcomes", column[string](s, all, event), []string{"billing DEAD", "unread PASSED_OVER", "well COMPLETED", "young PASSED_OVER"})
	s.exec("select posthorn.redrive('default', $1)", group)
	equal(t, "outcomes", column[string](s, all, event), []string{"billing RETRYING", "unread PASSED_OVER", "well COMPLETED", "young PASSED_OVER"})
	s.drain()
	s.refused("PH001", all, event)
}

// Events that were never handed out to a group are not completed.
func TestOutcomeBeforeTheGroup(t *testing.T) {
	t.Parallel()
	for start, want := range map[string]string{
		"now": outcomePassedOver, "beginning": outcomeCompleted, "between": outcomePassedOver,
	} {
		t.Run(start, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			old := s.publish()
			if start == "between" {
				start = value[string](s, "select posthorn.now()::text")
			}
			s.define(`{"start": "` + start + `"}`)
			event := s.publish()
			s.wantOutcome(event, outcomePending)
			if want == outcomePassedOver {
				s.wantOutcome(old, want)
			} else {
				s.wantOutcome(old, outcomePending)
			}
			s.drain()
			s.wantOutcome(old, want)
			s.wantOutcome(event, outcomeCompleted)
		})
	}
}

// Moving a group changes which events it will receive, and not the outcomes of the
// past.
func TestOutcomeAfterSeek(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	read := s.publish()
	s.drain()
	skipped := s.publish()
	s.exec("select posthorn.seek('default', $1, 'infinity')", group)
	s.wantOutcome(read, outcomeCompleted)
	s.wantOutcome(skipped, outcomePassedOver)
	after := s.publish()
	s.drain()
	s.exec("select posthorn.seek('default', $1, 'infinity')", group)
	s.wantOutcome(read, outcomeCompleted)
	s.wantOutcome(skipped, outcomePassedOver)
	s.wantOutcome(after, outcomeCompleted)

	s.exec("select posthorn.seek('default', $1, '-infinity')", group)
	for _, e := range []int64{read, skipped, after} {
		s.wantOutcome(e, outcomePending)
	}
	s.exec("select posthorn.seek('default', $1, 'infinity')", group) // nothing was read in between
	s.wantOutcome(skipped, outcomePassedOver)
	equal(t, "stretches with something in them, and the last", value[int](s, "select count(*) from posthorn.stretches"), 3)
	s.exec("select posthorn.seek('default', $1, '-infinity')", group)
	s.drain()
	s.wantOutcome(skipped, outcomeCompleted)
}

// For groups that did not record their stretches, all passed events count as handed
// out.
func TestOutcomeOfGroupWithUnknownStart(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	event := s.publish()
	s.drain()
	s.exec("delete from posthorn.stretches")
	s.wantOutcome(event, outcomeCompleted)
	s.exec("select posthorn.seek('default', $1, 'infinity')", group)
	s.wantOutcome(event, outcomeCompleted)
	pending := s.publish()
	s.exec("select posthorn.seek('default', $1, 'infinity')", group)
	s.wantOutcome(pending, outcomePassedOver)
}

func TestOutcomeDelayed(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	id := value[int64](s, "select posthorn.publish('default', 'e', deliver_at => posthorn.now() + interval '1 hour')")
	s.wantOutcome(id, "DELAYED - 0 - - -")
	equal(t, "due", value[bool](s, "select due_at > posthorn.now() from posthorn.outcomes('default', $1)", id), true)
	s.turnClock(2 * time.Hour)
	s.exec("select posthorn.tend()")
	s.refused("PH001", "select posthorn.outcomes('default', $1)", id) // it has another id now
}

// seed 002.16: an unknown id is an error, and so is the id of another namespace.
func TestOutcomeOfUnknownEvent(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	event := s.publish()
	s.exec("select posthorn.define_namespace('other')")
	s.refused("PH001", "select posthorn.outcomes('default', 4711)")
	s.refused("PH001", "select posthorn.outcomes('default', null)")
	s.refused("PH001", "select posthorn.outcomes('other', $1)", event)
	s.refused("PH001", "select posthorn.outcomes('nowhere', $1)", event)
}

// In another cluster the snapshots have no meaning until they are rebased.
func TestOutcomeAfterRestore(t *testing.T) {
	t.Parallel()
	s := database(t)
	before := s.publish()
	s.define("{}")
	done := s.publish()
	s.drain()
	waiting := s.publish()
	s.exec("update posthorn.cluster set system_identifier = 1")
	s.refused("PH005", "select posthorn.outcomes('default', $1)", done)

	s.exec("select posthorn.rebase()")
	s.wantOutcome(before, outcomeCompleted) // the start of the group is not known any more
	s.wantOutcome(done, outcomeCompleted)
	s.wantOutcome(waiting, outcomePending)
	s.settle(s.claim(10))
	s.wantOutcome(waiting, outcomeCompleted)
}

// An event that waits behind a failed one of its key has not failed, and names that one.
func TestOutcomeBehindAFailure(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"order": "key"}`)
	first, second := s.publishKey("k"), s.publishKey("k")
	s.settle(s.claim(2), failure{Event: first, Error: "timeout", RetryIn: "1 hour"}, failure{Event: second, Released: true, RetryIn: "1 hour"})
	const looks = `select concat_ws(' ', attempts, coalesce(error, '-'), at is not null, coalesce(behind::text, '-')) from posthorn.outcomes('default', $1)`
	equal(t, "the one that failed", value[string](s, looks, first), "1 timeout t -")
	equal(t, "the one behind it", value[string](s, looks, second), fmt.Sprintf("0 - f %d", first))
	equal(t, "in the list", column[string](s, `select concat_ws(' ', event_id, attempts, failed_at is not null, coalesce(behind::text, '-')) from posthorn.group_retries('default', $1)`, group),
		[]string{fmt.Sprintf("%d 1 t -", first), fmt.Sprintf("%d 0 f %d", second, first)})

	s.turnClock(2 * time.Hour)
	s.settle(s.claim(1))
	s.wantOutcome(first, outcomeCompleted)
	equal(t, "when that has ended", value[string](s, looks, second), "0 - f -")
}
