package relay_test

import (
	"context"
	"strconv"
	"strings"
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

// Another program has written entries to the broker under ids of the log. Those that the log would have refused are left out
// and stop neither the relay nor the others, also where a lost event has the same id. An event of Posthorn itself does not come
// back as one. An event that is larger than the limit of today is lost as the others are.
func TestEntriesThatNobodyPublished(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	sink := &readable{table: r.sink, stream: "a"}
	sink.has(r.send("a", 3)...)
	lost := r.lose(sink, 12)
	spoil := []func(e *posthorn.Event){
		func(e *posthorn.Event) { e.Payload = []byte(`"` + strings.Repeat("x", 2<<20) + `"`) }, // it is kept, as the next one
		func(e *posthorn.Event) { e.Type = "posthorn.webhook.disabled" },
		func(e *posthorn.Event) { e.Type = "a\nb" },
		func(e *posthorn.Event) { e.Type = strings.Repeat("x", 256) },
		func(e *posthorn.Event) { e.Key = "k\x01" },
		func(e *posthorn.Event) { e.Tags = []string{""} },
		func(e *posthorn.Event) { e.Payload = []byte(`"\u0000"`) },
		func(e *posthorn.Event) { e.Metadata = []byte(`{"a": "\u0000"}`) },
		func(e *posthorn.Event) { e.Payload = []byte(strings.Repeat("[", 600) + strings.Repeat("]", 600)) },
	}
	for i, change := range spoil {
		change(&sink.entries[3+i])
	}
	sink.has(lost[len(spoil)])
	sink.entries[len(sink.entries)-1].Type = "a\nb"
	r.relay(soon(), sink)
	r.Await("select exists (select from posthorn.lost_looks)")
	testworld.Equal(t, "the lost events", testworld.Column[int64](r, lostEvents), append(lost[:2:2], lost[len(spoil):]...))
	testworld.Equal(t, "errors", testworld.Column[string](r, "select unnest(errors) from posthorn.list_failovers('default')"), []string{})
	r.Exec("insert into posthorn.lost_events (id, namespace_id, next_id, stream, type, tags, payload, metadata, published_at, found_by) select id + 1, namespace_id, next_id, stream, E'\\x01', tags, payload, metadata, published_at, found_by from posthorn.lost_events order by id desc limit 1") // as an earlier release kept it
	testworld.Equal(t, "brought back", testworld.Ask[int](r, "select posthorn.bring_back('default', 1)"), 5)
	testworld.Equal(t, "their types", testworld.Column[string](r, "select type from posthorn.events where metadata::text like '{\"posthorn_origin\"%' order by id"),
		[]string{"e", "imported.posthorn.webhook.disabled", "e", "e", "e"})
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
