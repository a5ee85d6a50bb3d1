package guarantee

import (
	"testing"
	"time"
)

// A snapshot does not list the transaction that takes it. Once a later transaction
// has completed, it appears to be committed, and events that it publishes after its
// claim would count as handed out.
func TestPublishedAfterClaimInOneTransaction(t *testing.T) {
	t.Parallel()
	worker := database(t)
	worker.define("{}")
	publisher := worker.another()

	worker.exec("begin; select pg_current_xact_id()")
	first := publisher.publish()
	wantEvents(t, worker.claim(10).Events, first)
	derived := worker.publish()
	worker.exec("commit")

	wantEvents(t, publisher.drain(), derived)
}

func TestPublishedBeforeAndAfterClaimInOneTransaction(t *testing.T) {
	t.Parallel()
	worker := database(t)
	worker.define("{}")
	publisher := worker.another()

	worker.exec("begin")
	before := worker.publish()
	other := publisher.publish()
	wantEvents(t, worker.claim(10).Events, other)
	after := worker.publish()
	worker.exec("commit")

	wantEvents(t, publisher.drain(), before, after)
}

// Upkeep records a tick and delivers delayed events in one transaction.
func TestDelayedEventDeliveredWithTick(t *testing.T) {
	t.Parallel()
	s := database(t)
	publisher := s.another()
	s.exec("select posthorn.publish('default', 'reminder', deliver_at => posthorn.now() + interval '1 minute')")
	s.exec("begin; select pg_current_xact_id()")
	publisher.publish()
	s.exec("rollback")
	s.define(`{"start": "beginning"}`)

	// This is the tick's own transaction, with a later one completed before its
	// snapshot.
	s.exec(`create or replace function posthorn.look() returns posthorn.sight language plpgsql as $$
		declare s posthorn.sight;
		begin
			select case when e.is_called then e.last_value else 0 end into s.seq from posthorn.event_id e;
			if pg_current_xact_id_if_assigned() is null then
				s.next := pg_current_xact_id();
				perform pg_advisory_lock(1); -- the test lets a later transaction complete meanwhile
				perform pg_advisory_unlock(1);
			end if;
			return s;
		end $$`)
	publisher.exec("select pg_advisory_lock(1)")
	s.turnClock(time.Hour)
	tend := s.background("select posthorn.tend()")
	publisher.awaitBlocked(s)
	publisher.publish()
	publisher.exec("select pg_advisory_unlock(1)")
	if err := tend(); err != nil {
		t.Fatal(err)
	}

	tick := value[string](s, "select at::text from posthorn.ticks order by next desc limit 1")
	s.exec("select posthorn.seek('default', $1, $2::text::timestamptz)", group, tick)
	delivered := value[int64](s, "select id from posthorn.events where type = 'reminder'")
	wantEvents(t, s.drain(), delivered)
}
