package guarantee

import (
	"strings"
	"testing"
	"time"
)

const longAfter = 100 * 24 * time.Hour

// keepADay sets the retention so that every event published now is past it after
// longAfter.
func (s *session) keepADay() {
	s.t.Helper()
	s.exec("update posthorn.config set value = '1 day' where key = 'partition_retention_period'")
}

// maintain makes and drops partitions. Each row that it returns begins with the
// action.
func (s *session) maintain() []string {
	s.t.Helper()
	return column[string](s, "select action || ' ' || partition || ': ' || detail from posthorn.maintain_events_table()")
}

func (s *session) inLog(event int64) bool {
	s.t.Helper()
	return value[bool](s, "select exists (select from posthorn.events where id = $1)", event)
}

// wantKept checks that retention keeps an event for the reason why, until the
// function until has been called.
func (s *session) wantKept(event int64, why string, until func()) {
	s.t.Helper()
	s.turnClock(longAfter)
	report := strings.Join(s.maintain(), "\n")
	if !strings.Contains(report, why) {
		s.t.Errorf("report does not say %q:\n%s", why, report)
	}
	if !s.inLog(event) {
		s.t.Fatal("the event was dropped")
	}
	until()
	s.maintain()
	if s.inLog(event) {
		s.t.Errorf("the event still exists: %q", s.maintain())
	}
}

// A group that has been handed a part of the events that were committed late is owed
// the others, although its cursor already knows a snapshot that shows all of them.
func TestRetentionWaitsForLateCommits(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.keepADay()
	s.define("{}")
	slow := s.another()
	slow.exec("begin")
	late := slow.publishMany(6)
	s.publishMany(3)
	s.drain()
	slow.exec("commit")
	s.publish()
	l := s.claim(2)
	wantEvents(t, l.Events, late[:2]...)
	s.settle(l)
	s.wantKept(late[5], "has not read all of it", func() { s.drain() })
}

// A group is owed the events of transactions that were open when it read the log.
func TestRetentionWaitsForEventsBehindTheCursor(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.keepADay()
	s.define("{}")
	slow := s.another()
	slow.exec("begin")
	late := slow.publish()
	s.publish()
	s.drain()
	slow.exec("commit")
	s.wantKept(late, "has not read all of it", func() { s.drain() })
}

// seed 000.14: by default a partition is a month, and events are kept for six months.
func TestLogKeepsSixMonthsByTheMonth(t *testing.T) {
	t.Parallel()
	s := database(t)
	event := s.publish()
	equal(t, "partitions that are no month", column[string](s, `
		select name::text from posthorn.partitions
		where (upto at time zone 'UTC') <> (since at time zone 'UTC') + interval '1 month'
		  and since > posthorn.now()`), []string{})
	equal(t, "partitions ahead", value[bool](s, "select count(*) >= 2 from posthorn.partitions where since > posthorn.now()"), true)
	sixMonths := time.Duration(value[float64](s, `
		select extract(epoch from upto + interval '6 months' - clock_timestamp())
		from posthorn.partitions where since <= clock_timestamp() and upto > clock_timestamp()`)) * time.Second
	s.turnClock(sixMonths - time.Hour)
	if s.maintain(); !s.inLog(event) {
		t.Fatal("dropped within six months")
	}
	s.turnClock(sixMonths + time.Hour)
	if s.maintain(); s.inLog(event) {
		t.Error("the event still exists")
	}
}

// A transaction that published long ago commits while upkeep waits for the lock,
// after upkeep has checked which groups are owed events. So upkeep checks again under
// the lock.
func TestLateCommitIntoPartitionThatIsDropped(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.keepADay()
	s.patient()
	publisher, upkeep := s.another(), s.another()
	publisher.exec("begin")
	event := publisher.publish()
	s.turnClock(longAfter)

	maintain := upkeep.background("select posthorn.maintain_events_table()")
	s.awaitBlocked(upkeep)
	publisher.exec("commit")
	if err := maintain(); err != nil {
		t.Fatal(err)
	}
	wantEvents(t, s.drain(), event)
	s.maintain()
	if s.inLog(event) {
		t.Error("the event still exists after it was read")
	}
}

func TestRetentionDropsEventsOwedToNoGroup(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.keepADay()
	event := s.publish()
	if s.maintain(); !s.inLog(event) {
		t.Fatal("dropped before its time")
	}
	s.turnClock(longAfter)
	if s.maintain(); s.inLog(event) {
		t.Error("the event still exists")
	}
}

func TestRetentionWaitsForUnreadGroup(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.keepADay()
	s.define("{}")
	event := s.publish()
	s.wantKept(event, "group billing of namespace default has not read all of it", func() {
		wantEvents(t, s.drain(), event)
	})
}

func TestRetentionWaitsForWindowLease(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.keepADay()
	s.define("{}")
	event := s.publish()
	l := s.claim(10)
	s.drain() // so that the cursor is past the event
	s.wantKept(event, "of group billing has events in it", func() { s.settle(l) })
}

func TestRetentionWaitsForLeaseOfIDs(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"none", "key"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.keepADay()
			s.define(`{"order": "` + order + `"}`)
			slow := s.another()
			slow.exec("begin")
			late := slow.publish()
			s.publish()
			s.drain()
			slow.exec("commit")
			l := s.claim(10)
			wantEvents(t, l.Events, late)
			if !value[bool](s, "select ids is not null from posthorn.leases") {
				t.Fatal("the lease lists no ids: this tests nothing")
			}
			s.drain()
			s.wantKept(late, "of group billing has events in it", func() { s.settle(l) })
		})
	}
}

func TestRetentionWaitsForRetry(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.keepADay()
	s.define("{}")
	event := s.publish()
	s.settle(s.claim(10), failure{Event: event, RetryIn: "50 days"})
	s.drain()
	s.wantKept(event, "group billing retries event 1", func() {
		wantEvents(t, s.drain(), event)
	})
}

func TestRetentionDoesNotWaitForDeadLetter(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.keepADay()
	s.define("{}")
	event := s.publish()
	s.settle(s.claim(10), failure{Event: event, Permanent: true})
	s.drain()
	s.turnClock(longAfter)
	if s.maintain(); s.inLog(event) {
		t.Fatal("the event still exists")
	}
	equal(t, "payloads kept", column[string](s, "select type from posthorn.dead_letters"), []string{"order.placed"})
}

// The transaction has published, and is neither committed nor rolled back.
func TestRetentionWaitsForOpenTransaction(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.keepADay()
	s.define("{}")
	slow := s.another()
	slow.exec("begin")
	event := slow.publish()
	s.turnClock(longAfter)

	if report := strings.Join(s.maintain(), "\n"); !strings.Contains(report, "postponed") {
		t.Errorf("nothing was postponed:\n%s", report)
	}
	slow.exec("commit")
	wantEvents(t, s.drain(), event)
}

func TestHardLimitDropsOwedEvents(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.keepADay()
	s.exec("update posthorn.config set value = '30 days' where key = 'retention_hard_limit'")
	s.define("{}")
	failed, leased := s.publish(), s.publish()
	s.settle(s.claim(1), failure{Event: failed, RetryIn: "1 day"})
	s.claim(1)
	unread := s.publish()
	s.turnClock(longAfter)

	report := strings.Join(s.maintain(), "\n")
	if !strings.Contains(report, "past retention_hard_limit, though ") {
		t.Errorf("the report is silent about it:\n%s", report)
	}
	for _, event := range []int64{failed, leased, unread} {
		if s.inLog(event) {
			t.Errorf("event %d still exists", event)
		}
	}
	// The group continues behind the gap.
	next := s.publish()
	wantEvents(t, s.drain(), next)
	s.lookAgain()
	wantEvents(t, s.drain())
	equal(t, "leases and retries left", value[int](s, "select (select count(*) from posthorn.leases) + (select count(*) from posthorn.retries)"), 0)
}
