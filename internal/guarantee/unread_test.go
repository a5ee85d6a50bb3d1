package guarantee

import (
	"fmt"
	"testing"
)

func (s *session) wantUnread(want bool, when string, cursor *string) {
	s.t.Helper()
	if got := value[bool](s, "select posthorn.has_unread('default', 'test', $1)", cursor); got != want {
		s.t.Errorf("%s: has_unread is %t, want %t", when, got, want)
	}
}

// A call without rows is not the end of the log while there are events that it has not
// looked at, wanted or not.
func TestUnreadTellsTheEndOfTheLog(t *testing.T) {
	t.Parallel()
	s := readers(t)
	s.exec(`select posthorn.subscribe('default', 'test', 'wanted', '{"type": "wanted"}')`)
	s.wantUnread(false, "empty log", nil)
	slow := s.another()
	slow.exec("begin")
	slow.exec(`select posthorn.publish('default', 'unwanted', '{}')`)
	s.exec(`select posthorn.publish('default', 'unwanted', '{}') from generate_series(1, 30)`)
	s.wantUnread(true, "nothing read", nil)

	s.exec(`do $$ declare l record; begin
		select * into l from posthorn.take((select id from posthorn.groups where name = 'test'), 'w', 10, '1 minute', gen_random_uuid());
		perform posthorn.settle(l.lease, l.attempt);
	end $$`)
	s.wantUnread(true, "a part read", nil)
	s.exec("select posthorn.claim('default', 'test', 'w')")
	s.wantUnread(false, "all read", nil)
	slow.exec("commit")
	s.wantUnread(true, "late commit", nil)
	s.exec("select posthorn.claim('default', 'test', 'w')")
	s.wantUnread(false, "late event read", nil)
}

func TestUnreadOfAReader(t *testing.T) {
	t.Parallel()
	s := readers(t)
	s.exec(`select posthorn.publish('default', 'order.placed', '{}') from generate_series(1, 5)`)
	part := s.readNext(nil, 3, false)
	s.wantUnread(true, "three of five read", part.next)
	end := s.readNext(part.next, 3, false)
	s.wantUnread(false, "read ahead to the end", end.next)
	s.wantUnread(true, "the group has not moved", nil)
	s.exec(`select posthorn.publish('default', 'order.placed', '{}')`)
	s.wantUnread(true, "one more", end.next)
}

// Events that wait behind a failed one of their slot have been looked at.
func TestBlockedSlotIsRead(t *testing.T) {
	t.Parallel()
	s := readers(t)
	s.exec(`select posthorn.define_group('default', 'test', '{"order": "total", "delays": ["1 hour"]}')`)
	s.exec(`select posthorn.publish('default', 'order.placed', '{}') from generate_series(1, 5)`)
	s.exec(`do $$ declare l record; begin
		select * into l from posthorn.claim('default', 'test', 'w', 1);
		perform posthorn.settle(l.lease, l.attempt, jsonb_build_array(jsonb_build_object('event', l.event_id, 'error', 'no')));
	end $$`)
	s.exec("select posthorn.claim('default', 'test', 'w')")
	s.wantUnread(false, "blocked", nil)
}

// A claim of an ordered group without rows means the end of the log, also where the events of
// another namespace lie behind a dense part of its own.
func TestOrderedGroupsPassEventsOfOtherNamespaces(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("update posthorn.config set value = '100' where key = 'poll_chunk_size'")
	s.exec("select posthorn.define_namespace('other')")
	s.define(`{"order": "key"}`)
	s.exec("select posthorn.publish('default', 'a', key => i::text) from generate_series(1, 250) i")
	s.exec("select posthorn.publish('other', 'a') from generate_series(1, 2000)")
	s.exec("select posthorn.publish('default', 'a', key => i::text) from generate_series(1, 3) i")
	equal(t, "events before the first claim without rows", len(s.drain()), 253)
	if value[bool](s, "select posthorn.has_unread('default', $1)", group) {
		t.Error("a claim found nothing, and there are unread events")
	}
}

// A claim that comes to the end of what the log was at an earlier claim goes on with what it is
// now.
func TestClaimsPassTheEndOfAnEarlierTarget(t *testing.T) {
	t.Parallel()
	for _, order := range []string{"none", "key", "total"} {
		t.Run(order, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.exec("update posthorn.config set value = '10' where key = 'poll_chunk_size'")
			s.define(`{"order": "` + order + `"}`)
			for i := range 10 { // with gaps, so that claims look where windows end
				s.exec("select posthorn.publish('default', 'a', key => $1::text)", fmt.Sprint(i))
				s.exec("select nextval('posthorn.event_id')")
			}
			slow := s.another()
			slow.exec("begin")
			slow.exec("select posthorn.publish('default', 'late')") // so that the target ends behind the ten
			var events []int64
			for len(events) < 10 {
				l := s.claim(10)
				events = append(events, l.Events...)
				s.settle(l)
			}
			slow.exec("commit")
			s.exec("select posthorn.publish('default', 'a', key => i::text) from generate_series(1, 4) i")
			equal(t, "events before the next claim without rows", len(s.drain()), 5)
		})
	}
}

// The window behind an earlier target begins at that target: one that began where the earlier
// one did would have events twice.
func TestWindowBehindAnEarlierTarget(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	for range 10 { // with gaps, so that claims look where windows end
		s.publish()
		s.exec("select nextval('posthorn.event_id')")
	}
	equal(t, "events of the first window", len(s.claim(10).Events), 10)
	target := value[string](s, "select target::text from posthorn.cursors order by n desc limit 1")
	wanted := []int64{s.publish(), s.publish()}
	l := s.claim(10)
	wantEvents(t, l.Events, wanted...)
	equal(t, "the beginning of the window", value[string](s, "select base::text from posthorn.leases where id = $1", l.ID), target)
}
