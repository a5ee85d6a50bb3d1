package guarantee

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/posthorntest"
)

// relay is the relay named out, as one process uses it.
type relay struct {
	*session
	group int64
	owner string
	epoch int64
}

const (
	first  = "supervisor-host-1-0123abcd"
	second = "supervisor-host-2-0123abcd"
)

// relay defines the relay and takes its lead.
func (s *session) relay(owner string) *relay {
	s.t.Helper()
	r := &relay{session: s, owner: owner, group: value[int64](s, "select posthorn.define_relay('default', 'out')")}
	r.epoch = value[int64](s, "select coalesce((posthorn.lead_relay($1, $2, '1 minute')).term, 0)", r.group, owner)
	return r
}

// of publishes n events to a stream.
func (s *session) of(stream string, n int) []int64 {
	s.t.Helper()
	return column[int64](s, `select posthorn.publish_many('default', (
		select jsonb_agg(jsonb_build_object('type', 'e', 'stream', $1::text)) from generate_series(1, $2)))`, stream, n)
}

// window is a lease of a relay.
type window struct {
	lease   int64
	attempt int
	events  []int64
}

// take takes the next window. It returns an empty window if there is none.
func (r *relay) take(n int) window {
	r.t.Helper()
	return r.window("select lease, attempt from posthorn.take_relay($2, $3, $4, $5, '1 minute', $1::text::uuid, true)", n)
}

// takeAside takes events of a stream that were set aside. It returns an empty window if
// there are none, or another window of them is taken.
func (r *relay) takeAside(stream string) window {
	r.t.Helper()
	return r.window("select lease, attempt from posthorn.take_aside($2, $3, $4, array[$5::bigint], '1 minute', $1::text::uuid)", r.stream(stream))
}

// window returns the window of a call, which has a token and the lead as its arguments.
func (r *relay) window(call string, arg any) window {
	r.t.Helper()
	token := value[string](r.session, "select gen_random_uuid()::text")
	var w window
	rows, _ := r.conn.Query(r.t.Context(), call, token, r.group, r.owner, r.epoch, arg)
	if _, err := pgx.ForEachRow(rows, []any{&w.lease, &w.attempt}, func() error { return nil }); err != nil {
		r.t.Fatal(err)
	}
	w.events = column[int64](r.session, "select event_id from posthorn.lease_events($1::text::uuid)", token)
	return w
}

const settleRelay = "select posthorn.settle_relay($1, $2, $3, $4, $5, $6::text::jsonb)"

// settle settles a window after all its events of a stream were written.
func (r *relay) settle(w window, stream string) {
	r.t.Helper()
	r.exec(settleRelay, r.group, r.owner, r.epoch, w.lease, w.attempt, fmt.Sprintf(`{"relayed": [[%d, %d, %d]]}`,
		r.stream(stream), w.events[0], w.events[len(w.events)-1]))
}

// setAside settles a window of which some events of a stream are set aside.
func (r *relay) setAside(w window, stream string, events ...int64) {
	r.t.Helper()
	r.exec(settleRelay, r.group, r.owner, r.epoch, w.lease, w.attempt, fmt.Sprintf(`{"aside": [[%d, %s]]}`,
		r.stream(stream), value[string](r.session, "select to_json($1::bigint[])::text", events)))
}

func (s *session) stream(name string) int64 {
	s.t.Helper()
	return value[int64](s, "select id from posthorn.streams where namespace = 'default' and name = $1", name)
}

func (s *session) checkpoint(stream string) *int64 {
	s.t.Helper()
	return value[*int64](s, "select checkpoint::bigint from posthorn.stream_leases where stream_name = $1", stream)
}

// Seed 003.14, 003.15: of many processes that ask concurrently, one leads.
func TestOneProcessLeads(t *testing.T) {
	t.Parallel()
	s := database(t)
	group := value[int64](s, "select posthorn.define_relay('default', 'out')")
	s.exec("create table public.asked (owner text, term bigint)")
	for range 2 {
		before := s.another()
		before.exec("begin")
		before.exec("select posthorn.lock_group($1::int)", group)
		var outcomes []func() error
		for i := range 8 {
			one := s.another()
			outcomes = append(outcomes, one.background(
				"insert into public.asked select $2, (posthorn.lead_relay($1, $2, '1 minute')).term", group, fmt.Sprintf("supervisor-host-%d-0123abcd", i)))
			s.awaitBlocked(one) // it has seen that nobody leads
		}
		before.exec("commit")
		for _, outcome := range outcomes {
			if err := outcome(); err != nil {
				t.Fatal(err)
			}
		}
		equal(t, "leaders", value[int](s, "select count(*) from public.asked where term is not null"), 1)
		s.exec("delete from public.asked")
		s.exec("select posthorn.resign_relay($1, owner, epoch) from posthorn.leads", group)
	}
}

// Seed 003.16, 003.18: a lead that was not renewed goes to another process, which
// first gets the leases in flight, in their order.
func TestLeadIsTakenOver(t *testing.T) {
	t.Parallel()
	s := database(t)
	events := s.of("a", 50)
	one := s.relay(first)
	w1, w2 := one.take(10), one.take(10)
	equal(t, "windows of the first", append(slices.Clone(w1.events), w2.events...), events[:20])
	two := s.relay(second)
	equal(t, "epoch of the process that does not lead", two.epoch, 0)
	s.turnClock(50 * time.Second)
	s.exec("select posthorn.lead_relay($1, $2, '1 minute', $3)", one.group, one.owner, one.epoch)
	s.turnClock(100 * time.Second)
	equal(t, "epoch while the first has renewed", s.relay(second).epoch, 0)
	s.turnClock(3 * time.Minute)
	two = s.relay(second)
	equal(t, "epoch of the second", two.epoch, 2)
	equal(t, "the first that it takes", two.take(1).events, w1.events)
	equal(t, "the second that it takes", two.take(1000).events, w2.events)
	equal(t, "the third", two.take(10).events, events[20:30])
	equal(t, "leads again", s.relay(second).epoch, 3)
	for i, want := range [][]int64{events[:10], events[10:20], events[20:30], events[30:50]} {
		equal(t, fmt.Sprint("again ", i), as(s, 3).take(20).events, want)
	}
	equal(t, "the end", as(s, 3).take(20).lease, 0)
}

// as returns the relay as its leader of an epoch uses it.
func as(s *session, epoch int64) *relay {
	return &relay{session: s, owner: second, epoch: epoch, group: value[int64](s, "select max(group_id) from posthorn.relays")}
}

// Seed 003.17: a late owner is refused by the statement that would move its
// checkpoint, and changes nothing by any call.
func TestLateOwnerIsFenced(t *testing.T) {
	t.Parallel()
	s := database(t)
	events := s.of("a", 40)
	late := s.relay(first)
	late.settle(late.take(10), "a")
	w := late.take(10)
	aside := late.take(10)
	late.setAside(aside, "a", aside.events[0])
	lease := late.takeAside("a").lease
	s.turnClock(2 * time.Minute)
	next := s.relay(second)
	report := fmt.Sprintf(`{"relayed": [[%d, %d, %d]]}`, s.stream("a"), w.events[0], w.events[9])
	s.refused("PH003", settleRelay, late.group, late.owner, late.epoch, w.lease, w.attempt, report)
	// It is also refused with only the epoch or only the lease of its successor.
	s.refused("PH003", settleRelay, late.group, late.owner, next.epoch, w.lease, w.attempt+1, report)
	s.refused("PH003", settleRelay, late.group, next.owner, next.epoch, w.lease, w.attempt, report)
	s.refused("PH003", "select posthorn.lead_relay($1, $2, '1 minute', $3)", late.group, late.owner, late.epoch)
	s.refused("PH003", "select posthorn.take_relay($1, $2, $3, 10, '1 minute', gen_random_uuid())", late.group, late.owner, late.epoch)
	s.refused("PH003", "select posthorn.take_aside($1, $2, $3, '{1}', '1 minute', gen_random_uuid())", late.group, late.owner, late.epoch)
	s.refused("PH003", "select posthorn.settle_aside($1, $2, $3, $4::text::jsonb)", late.group, late.owner, late.epoch,
		fmt.Sprintf(`{"leases": [[%d, 1, 1000]]}`, lease))
	equal(t, "whether it could resign for another", value[bool](s, "select posthorn.resign_relay($1, $2, $3)", late.group, late.owner, late.epoch), false)
	equal(t, "checkpoint", *s.checkpoint("a"), events[9])
	equal(t, "events of the next leader", next.take(10).events, w.events)
}

// A late owner that settles while another takes the lead waits for it, and is then
// refused.
func TestLateOwnerIsFencedInARace(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.of("a", 10)
	late := s.relay(first)
	w := late.take(10)
	s.turnClock(2 * time.Minute)
	taking := s.another()
	taking.exec("begin")
	taking.exec("select posthorn.lead_relay($1, $2, '1 minute')", late.group, second)
	settling := s.another()
	outcome := settling.background(settleRelay, late.group, late.owner, late.epoch, w.lease, w.attempt, "{}")
	s.awaitBlocked(settling)
	taking.exec("commit")
	if err := outcome(); !hasCode(err, "PH003") {
		t.Errorf("settling: %v", err)
	}
	equal(t, "leases", value[int](s, "select count(*) from posthorn.leases"), 1)
}

// The events of a stuck stream keep their order under any owner.
func TestSetAsideKeepsItsOrder(t *testing.T) {
	t.Parallel()
	s := database(t)
	events := s.of("a", 3000)
	r := s.relay(first)
	for range 6 {
		w := r.take(500)
		r.setAside(w, "a", w.events...)
	}
	equal(t, "leases", value[int](s, "select count(*) from posthorn.leases"), 3)
	equal(t, "is all owed", value[int64](s, "select set_aside from posthorn.relay_status"), 3000)
	var got []int64
	for i := 0; len(got) < 3000 && i < 20; i++ {
		w := r.takeAside("a")
		equal(t, "another in flight", r.takeAside("a").lease, 0)
		if i == 1 || i == 3 { // another process continues
			r = s.relay(r.owner)
			continue
		}
		ids := column[int64](s, "select unnest(ids) from posthorn.leases where id = $1", w.lease)
		ids = ids[:(len(ids)+1)/2] // a part of them
		if i > 4 {
			ids = column[int64](s, "select unnest(ids) from posthorn.leases where id = $1", w.lease)
		}
		got = append(got, ids...)
		s.exec("select posthorn.settle_aside($1, $2, $3, $4::text::jsonb)", r.group, r.owner, r.epoch,
			fmt.Sprintf(`{"leases": [[%d, %d, %d]], "relayed": [[%d, %d, %d]]}`, w.lease, w.attempt, ids[len(ids)-1], s.stream("a"), ids[0], ids[len(ids)-1]))
	}
	equal(t, "events", got, events)
	equal(t, "leases in the end", value[int](s, "select count(*) from posthorn.leases"), 0)
	equal(t, "checkpoint", *s.checkpoint("a"), events[2999])
}

// Events that were set aside are handed out in the order of the log, although one of them
// was committed after the others had been set aside.
func TestEventsThatWereSetAsideComeInOrder(t *testing.T) {
	t.Parallel()
	s := database(t)
	slow := s.another()
	slow.exec("begin")
	late := slow.of("a", 1)
	early := s.of("a", 2)
	r := s.relay(first)
	for range 2 {
		w := r.take(10)
		r.setAside(w, "a", w.events...)
		if len(w.events) == 2 {
			slow.exec("commit")
		}
	}
	equal(t, "set aside", column[int64](s, "select unnest(ids) from posthorn.leases where slot is not null"), append(slices.Clone(early), late...))
	equal(t, "handed out", r.takeAside("a").events, append(late, early...))
}

// Retention keeps events that a relay has not written, including those set aside.
func TestRetentionWaitsForRelay(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.keepADay()
	r := s.relay(first)
	event := s.of("a", 1)[0]
	s.wantKept(event, "group out of namespace default has not read all of it", func() {
		r = s.relay(first)
		w := r.take(10)
		r.setAside(w, "a", event)
		if s.maintain(); !s.inLog(event) {
			t.Fatal("an event that is set aside was dropped")
		}
		w = r.takeAside("a")
		r.exec("select posthorn.settle_aside($1, $2, $3, $4::text::jsonb)", r.group, r.owner, r.epoch, fmt.Sprintf(`{"leases": [[%d, %d, 1000000]]}`, w.lease, w.attempt))
	})
}

// Written events are noted in at most one row a second for each stream, and after a
// day one row a minute. The rows are dropped with the log, except for the last one.
func TestNotesOfWrittenEvents(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.keepADay()
	r := s.relay(first)
	rows := func() int { return value[int](s, "select count(*) from posthorn.relayed") }
	at := func(clock string) {
		s.exec("create or replace function posthorn.now() returns timestamptz language sql volatile parallel safe return '" + clock + "'::timestamptz")
	}
	start := time.Date(2030, 3, 1, 12, 0, 0, 0, time.UTC)
	var events []int64
	write := func(n int) {
		ids := s.of("a", n)
		r.epoch = value[int64](s, "select coalesce((posthorn.lead_relay($1, $2, '1 day')).term, 0)", r.group, r.owner)
		r.settle(r.take(n), "a")
		events = append(events, ids...)
	}
	at(start.Format(time.RFC3339Nano))
	s.exec("select posthorn.maintain_events_table()")
	r.epoch = value[int64](s, "select coalesce((posthorn.lead_relay($1, $2, '1 day')).term, 0)", r.group, r.owner)
	for i := range 10 { // ten windows in a second
		at(start.Add(time.Duration(i) * 90 * time.Millisecond).Format(time.RFC3339Nano))
		s.of("a", 5)
		r.settle(r.take(5), "a")
	}
	equal(t, "rows of a second", rows(), 1)
	equal(t, "range of the row", value[int64](s, "select last_id - first_id from posthorn.relayed"), 49)
	for i := range 10 { // and ten seconds
		at(start.Add(time.Duration(2+i) * time.Second).Format(time.RFC3339Nano))
		s.of("a", 5)
		r.settle(r.take(5), "a")
	}
	equal(t, "rows of ten seconds more", rows(), 11)
	last := *s.checkpoint("a")
	at(start.Add(25 * time.Hour).Format(time.RFC3339Nano))
	s.exec("select posthorn.sweep_relayed()")
	equal(t, "rows a day later", rows(), 1)
	equal(t, "events with a time", value[int](s, "select count(*) from posthorn.outbox_event where published_at is not null"), 100)
	write(1)
	equal(t, "rows with one more", rows(), 2)
	at(start.Add(100 * 24 * time.Hour).Format(time.RFC3339Nano))
	r.epoch = value[int64](s, "select coalesce((posthorn.lead_relay($1, $2, '1 day')).term, 0)", r.group, r.owner)
	if w := r.take(10); w.lease != 0 {
		r.settle(w, "a")
	}
	s.maintain()
	s.exec("select posthorn.sweep_relayed()")
	equal(t, "rows when the log is gone", rows(), 1)
	if got := *s.checkpoint("a"); got <= last {
		t.Errorf("the checkpoint is %d, it was %d", got, last)
	}
}

// Seed 003.3: after a restore into another cluster a relay continues with the events
// that it had not written, in order, and the log keeps its identity.
func relayAfterARestore(t *testing.T, own *ownDatabase) {
	s := own.session()
	a, b := s.of("a", 30), s.of("b", 30)
	one := s.relay(first)
	one.settle(one.take(10), "a")
	one.take(10)
	w := one.take(20) // the rest of a, and some of b
	one.setAside(w, "b", b[:2]...)
	one.take(10)
	origin := value[string](s, "select posthorn.origin()::text")

	s = connect(t, restore(t, own.url(), posthorntest.EmptyDatabase(t)))
	equal(t, "origin", value[string](s, "select posthorn.origin()::text"), origin)
	s.exec("select posthorn.rebase()")
	equal(t, "origin after rebase", value[string](s, "select posthorn.origin()::text"), origin)
	s.exec("update posthorn.leads set until = posthorn.now()")
	r := s.relay(second)
	var got []int64
	for w := r.take(1000); w.lease != 0; w = r.take(1000) {
		got = append(got, w.events...)
	}
	equal(t, "events after the restore", got, append(slices.Clone(a[10:20]), b[10:]...))
	equal(t, "events set aside", column[int64](s, "select unnest(ids) from posthorn.leases where slot is not null"), b[:2])
}

// A consumer may run a relay.
func TestConsumersMayRelay(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("set role posthorn_consumer")
	r := s.relay(first)
	equal(t, "leads", r.epoch, 1)
	s.exec("select * from posthorn.stream_leases")
	s.exec("select * from posthorn.relay_status")
	s.refused("42501", "select * from posthorn.relays")
	s.refused("42501", "select * from posthorn.leads")
	s.refused("42501", "update posthorn.log_origin set origin = gen_random_uuid()")
}
