package guarantee

import (
	"testing"
	"time"
)

func (s *session) publishOnce(key string) int64 {
	s.t.Helper()
	return value[int64](s, "select posthorn.publish('default', 'order.placed', dedup_key => $1)", key)
}

// seed 000.67
func TestDedupKeyPublishesOnce(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	first := s.publishOnce("a")
	equal(t, "id of the second", s.publishOnce("a"), first)
	other := s.publishOnce("b")
	wantEvents(t, s.drain(), first, other)
}

func TestDedupKeyIsForgottenAfterItsPeriod(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("update posthorn.config set value = '1 hour' where key = 'dedup_period'")
	first := s.publishOnce("a")
	s.turnClock(59 * time.Minute)
	equal(t, "within the period", s.publishOnce("a"), first)
	s.turnClock(61 * time.Minute)
	if s.publishOnce("a") == first {
		t.Error("the key is still known")
	}
	s.turnClock(3 * time.Hour)
	s.exec("select posthorn.tend()")
	equal(t, "keys kept", value[int](s, "select count(*) from posthorn.dedup_keys"), 0)
}

func TestDedupKeyBelongsToItsNamespace(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.define_namespace('other')")
	first := s.publishOnce("a")
	if value[int64](s, "select posthorn.publish('other', 'order.placed', dedup_key => 'a')") == first {
		t.Error("the key is known in another namespace")
	}
}

// The second transaction waits for the first, and publishes if the first rolls back.
func TestDedupKeyOfConcurrentTransactions(t *testing.T) {
	t.Parallel()
	for end, published := range map[string]int{"commit": 1, "rollback": 1} {
		t.Run(end, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			slow, second := s.another(), s.another()
			slow.exec("begin")
			slow.publishOnce("a")
			outcome := second.background("select posthorn.publish('default', 'order.placed', dedup_key => 'a')")
			s.awaitBlocked(second)
			slow.exec(end)
			if err := outcome(); err != nil {
				t.Fatal(err)
			}
			equal(t, "events", value[int](s, "select count(*) from posthorn.events"), published)
			id := value[int64](s, "select id from posthorn.events")
			equal(t, "id by which the key is known", s.publishOnce("a"), id)
		})
	}
}

func TestDelayedEventEntersTheLogWhenDue(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"order": "total"}`)
	publish := func(kind, in string) {
		s.exec("select posthorn.publish('default', $1, deliver_at => posthorn.now() + $2::text::interval)", kind, in)
	}
	publish("second", "2 hours")
	publish("first", "1 hour")
	publish("never", "1 year")
	s.exec("select posthorn.tend()")
	wantEvents(t, s.drain())

	s.turnClock(3 * time.Hour)
	s.exec("select posthorn.tend()")
	equal(t, "in order of their time", column[string](s, "select type from posthorn.events where id = any ($1) order by id", s.drain()),
		[]string{"first", "second"})
}

func TestDelayedEventThatIsDueIsPublishedAtOnce(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	id := value[int64](s, "select posthorn.publish('default', 'e', deliver_at => '2020-01-01')")
	wantEvents(t, s.drain(), id)
}

func TestDelayedEventIsCancelled(t *testing.T) {
	t.Parallel()
	s := database(t)
	id := value[int64](s, "select posthorn.publish('default', 'e', deliver_at => posthorn.now() + interval '1 hour')")
	equal(t, "cancelled", value[bool](s, "select posthorn.cancel_delayed('default', $1)", id), true)
	equal(t, "cancelled again", value[bool](s, "select posthorn.cancel_delayed('default', $1)", id), false)
	s.turnClock(2 * time.Hour)
	s.exec("select posthorn.tend()")
	equal(t, "events", value[int](s, "select count(*) from posthorn.events"), 0)
}

// Upkeep may run on several nodes, and a delayed event enters the log once.
func TestDelayedEventIsDeliveredOnce(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.publish('default', 'e', deliver_at => posthorn.now() + interval '1 hour') from generate_series(1, 20)")
	s.turnClock(2 * time.Hour)
	other, third := s.another(), s.another()
	other.exec("begin; select posthorn.deliver_delayed(5)")
	third.exec("select posthorn.deliver_delayed()")
	other.exec("commit")
	s.exec("select posthorn.tend()")
	equal(t, "events", value[int](s, "select count(*) from posthorn.events"), 20)
}

// A dedup key works together with a delay.
func TestDelayedEventWithDedupKey(t *testing.T) {
	t.Parallel()
	s := database(t)
	publish := func() int64 {
		return value[int64](s, "select posthorn.publish('default', 'e', deliver_at => posthorn.now() + interval '1 hour', dedup_key => 'a')")
	}
	first := publish()
	equal(t, "id of the second", publish(), first)
	s.turnClock(2 * time.Hour)
	s.exec("select posthorn.tend()")
	equal(t, "events", value[int](s, "select count(*) from posthorn.events"), 1)
}
