package relay_test

import (
	"context"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// readable is a broker for tests that can be read back.
type readable struct {
	*table
	stream  string
	mu      sync.Mutex
	entries []posthorn.Event // the first one first
}

func (s *readable) Written(context.Context, string, string) ([]string, error) {
	return []string{s.stream}, nil
}

func (s *readable) ReadBack(_ context.Context, log, namespace, stream, before string, limit int) (read []posthorn.SourceEntry, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	end := len(s.entries)
	if before != "" {
		if end, err = strconv.Atoi(before); err != nil {
			return nil, err
		}
	}
	for i := end - 1; i >= max(0, end-limit); i-- {
		read = append(read, posthorn.SourceEntry{Stream: stream, Position: strconv.Itoa(i), Log: log, Namespace: namespace, Event: s.entries[i]})
	}
	return read, nil
}

// has adds events to the broker that no relay has written.
func (s *readable) has(ids ...int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, id := range ids {
		s.entries = append(s.entries, posthorn.Event{ID: id, Stream: s.stream, Type: "e", Payload: []byte("{}"), Metadata: []byte("{}"), PublishedAt: time.Now()})
	}
}

// lose gives the broker events that the log has lost in a crash, and returns their ids.
func (r *relaying) lose(sink *readable, n int) []int64 {
	r.T.Helper()
	lost := testworld.Column[int64](r, "select nextval('posthorn.event_id') from generate_series(1, $1)", n)
	sink.has(lost...)
	r.Exec("truncate posthorn.this_life; select posthorn.notice_restore()") // as a crash does, and the next session
	return lost
}

const lostEvents = "select l.id from posthorn.list_failovers('default') f, posthorn.list_lost_events('default', f.id, max_events => 10000) l order by 1"

// The database fails while a relay compares. The list of lost events is whole when it works
// again, and the relay notes no comparison before.
func TestDatabaseFailsWhileRelayCompares(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	sink := &readable{table: r.sink, stream: "a"}
	sink.has(r.send("a", 3)...)
	lost := r.lose(sink, 1)
	r.Exec(`
		create sequence tries;
		create function no() returns trigger language plpgsql as $$ begin
			perform nextval('public.tries');
			raise 'the database fails';
		end $$;
		create trigger no before insert on posthorn.lost_events for each row execute function no()`)
	r.relay(soon(), sink)
	r.Await("select last_value >= 2 or exists (select from posthorn.lost_looks) from tries")
	testworld.Equal(t, "comparisons", testworld.Ask[int](r, "select count(*) from posthorn.lost_looks"), 0)
	r.Exec("drop trigger no on posthorn.lost_events")
	r.Await("select exists (select from posthorn.lost_looks)")
	testworld.Equal(t, "the lost events", testworld.Column[int64](r, lostEvents), lost)
	testworld.Equal(t, "errors", testworld.Column[string](r, "select unnest(errors) from posthorn.list_failovers('default')"), []string{})
}

// Every second time the database fails while a relay compares. The comparison goes on where it was.
func TestDatabaseFailsNowAndThenWhileRelayCompares(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	sink := &readable{table: r.sink, stream: "a"}
	sink.has(r.send("a", 3)...)
	lost := r.lose(sink, 500)
	r.Exec(`
		create sequence tries;
		create function no() returns trigger language plpgsql as $$ begin
			if nextval('public.tries') % 2 = 1 then
				raise 'the database fails';
			end if;
			return null;
		end $$;
		create trigger no before insert on posthorn.lost_events for each statement execute function no()`)
	r.relay(soon(), sink)
	r.Await("select exists (select from posthorn.lost_looks)")
	testworld.Equal(t, "the lost events", testworld.Column[int64](r, lostEvents), lost)
}

// A relay has written many events since a failover, and has not compared: its comparison was
// lost in a second failover. The lost events are behind more events than a window has.
func TestLostEventsBehindLaterOnes(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	sink := &readable{table: r.sink, stream: "a"}
	sink.has(r.send("a", 3)...)
	lost := r.lose(sink, 1)
	for range 5 {
		sink.has(r.send("a", 500)...)
	}
	lost = append(lost, r.lose(sink, 1)...)
	r.relay(soon(), sink)
	r.Await("select exists (select from posthorn.lost_looks)")
	testworld.Equal(t, "the lost events", testworld.Column[int64](r, lostEvents), lost)
}

// What an earlier failover has lost is listed already: the relay does not read back to it again.
func TestLostEventsAreFoundOnce(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	sink := &readable{table: r.sink, stream: "a"}
	sink.has(r.send("a", 3)...)
	lost := r.lose(sink, 5000)
	r.relay(soon(), sink)
	r.Await("select exists (select from posthorn.lost_looks)")
	lost = append(lost, r.lose(sink, 1)...)
	r.Await("select count(*) = 2 from posthorn.lost_looks")
	testworld.Equal(t, "entries that were compared", testworld.Column[int](r, "select entries from posthorn.lost_looks order by next_id"), []int{5003, 2100})
	testworld.Equal(t, "the lost events", testworld.Column[int64](r, lostEvents), lost)
}
