package guarantee

import (
	"cmp"
	"fmt"
	"testing"
	"time"
)

// A session that plans a query of the log while a partition is attached keeps that
// plan, and must find events that are published into the partition, without upkeep in
// between. Readers without a group and archives query the log twice in a transaction;
// the second statement is the one that is stopped.
func TestPlanMadeWhilePartitionIsAttached(t *testing.T) {
	t.Parallel()
	for when, since := range map[string]string{
		"past":        "posthorn.now() - interval '100 days'",
		"near future": "(select max(upto) from posthorn.partition_bounds)",
		"far future":  "posthorn.now() + interval '700 days'",
	} {
		for function, prepare := range map[string]func(s, reader *session) reading{
			"lease_events":                 readWindow,
			"lease_events with conditions": readMatches,
			"take of late events":          readLate,
			"claim of a projection":        readProjection,
			"read_events":                  readWithoutGroup,
			"read_log":                     readLogWithoutGroup,
			"read_next_events":             readNextEvents,
			"take_relay":                   readRelayed,
			"plan_archive":                 readArchived,
		} {
			t.Run(function+", "+when, func(t *testing.T) {
				t.Parallel()
				planMadeWhileAttached(t, since, prepare)
			})
		}
	}
}

// reading is a way to read the log.
type reading struct {
	plan    string // the statement that is planned while a partition is attached
	args    []any
	stopsAt string         // planning is stopped at the index of this column, which no earlier plan uses; xid by default
	read    func() []int64 // the events that are read afterwards
	slow    *session       // the transaction that publishes the event; by default one that begins afterwards
	id      *int64         // the id that slow has drawn for it
}

func planMadeWhileAttached(t *testing.T, since string, prepare func(s, reader *session) reading) {
	s := database(t)
	s.exec("update posthorn.cluster set clock_low = posthorn.now() - interval '1 year'")
	// A minute before the last partition ends.
	s.turnClock(value[time.Duration](s, "select max(upto) - now() - interval '1 minute' from posthorn.partition_bounds"))
	reader, holder, maker, publisher := s.another(), s.another(), s.another(), s
	for _, setting := range []string{
		"search_path = pg_catalog, pg_temp", // as in the functions that call others: a plan is kept for one search_path
		"plan_cache_mode = force_generic_plan", "enable_seqscan = off", "enable_bitmapscan = off", "jit = off",
	} {
		reader.exec("set " + setting)
	}
	r := prepare(s, reader)
	if r.slow != nil {
		publisher = r.slow
	}

	// Planning looks up the partitions, and then their indexes one after another: it
	// is stopped at the first. This alter takes the lock and changes nothing, so that
	// earlier plans are kept.
	holder.exec("begin")
	holder.exec(fmt.Sprintf("alter index %s set tablespace pg_default", value[string](s, `select i.indexrelid::regclass::text
		from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[0]
		where a.attname = $1 and i.indrelid = (select name from posthorn.partition_bounds order by since limit 1)`, cmp.Or(r.stopsAt, "xid"))))
	planned := reader.background(r.plan, r.args...)
	s.awaitBlocked(reader)
	const partitions = "select count(*) from pg_inherits where inhparent = 'posthorn.events'::regclass"
	before, from := value[int](s, partitions), value[time.Time](s, "select "+since)
	made := maker.background("select posthorn.create_partition($1, $2)", from, from.Add(24*time.Hour))
	s.await("select ("+partitions+") > $1 or exists (select from pg_locks where pid = $2 and not granted)", before, maker.pid())
	holder.exec("commit")
	for _, outcome := range []func() error{planned, made} {
		if err := outcome(); err != nil {
			t.Fatal(err)
		}
	}

	event := value[int64](publisher, `insert into posthorn.events (id, created_at, namespace_id, stream_id, type, payload)
		values (coalesce($1, nextval('posthorn.event_id')), $2, 1, 1, 'e', '{"n": 1}') returning id`, r.id, from.Add(time.Second))
	if r.slow != nil {
		r.slow.exec("commit")
	}
	wantEvents(t, r.read(), event)
}

const (
	leaseEvents = "select event_id from posthorn.lease_events($1::text::uuid)"
	planToken   = "00000000-0000-0000-0000-000000000001"
)

// takeAndRead takes a lease of the test's group, and reads its events.
func (s *session) takeAndRead() []int64 {
	s.t.Helper()
	s.exec("select posthorn.take(id, 'w', 10, '1 minute', $1::text::uuid) from posthorn.groups where name = $2", planToken, group)
	return column[int64](s, leaseEvents, planToken)
}

func readWindow(s, reader *session) reading {
	s.define("{}")
	return reading{plan: leaseEvents, args: []any{planToken}, read: reader.takeAndRead}
}

const planBatch = "select posthorn.batch_of(null::posthorn.leases, null)"

func readMatches(s, reader *session) reading {
	s.define("{}")
	s.subscribeSQL("n", "e.payload ? 'n'", "{}")
	return reading{plan: planBatch, read: reader.takeAndRead}
}

func readNextEvents(s, reader *session) reading {
	s.define("{}")
	s.subscribeSQL("n", "e.payload ? 'n'", "{}")
	return reading{plan: planBatch, read: func() []int64 {
		return column[int64](reader, "select id from posthorn.read_next_events($1)", group)
	}}
}

// late leaves out an event whose id a transaction has drawn.
func late(s *session, drain func() []int64) reading {
	slow := s.another()
	slow.exec("begin")
	slow.exec("select pg_current_xact_id()")
	id := value[int64](slow, "select nextval('posthorn.event_id')")
	before := s.publish()
	wantEvents(s.t, drain(), before)
	return reading{
		plan: "select posthorn.advance(posthorn.newest_cursor(id), 1, 10, row (0, null)::posthorn.sight, '-infinity') from posthorn.groups where name = $1",
		args: []any{group}, slow: slow, id: &id,
	}
}

func readLate(s, reader *session) reading {
	s.define("{}")
	r := late(s, s.drain)
	r.read = reader.takeAndRead
	return r
}

func readProjection(s, reader *session) reading {
	s.project()
	r := late(s, func() []int64 { return s.applyAll(group) })
	r.read = func() []int64 { return reader.applyAll(group) }
	return r
}

func readWithoutGroup(_, reader *session) reading {
	start := reader.startOfLog()
	return reading{plan: "select posthorn.read_events('default', $1)", args: []any{start}, stopsAt: "namespace_id", read: func() []int64 {
		events, _ := reader.read(start)
		return events
	}}
}

func readLogWithoutGroup(_, reader *session) reading {
	start := reader.startOfLog()
	return reading{plan: "select posthorn.read_log('default', $1)", args: []any{start}, stopsAt: "namespace_id", read: func() []int64 {
		var events []int64
		batch, _, _ := reader.readLog(start, 10)
		for _, e := range batch {
			events = append(events, e.id)
		}
		return events
	}}
}

// startOfLog is a cursor before all events.
func (s *session) startOfLog() string {
	s.t.Helper()
	return value[string](s, "select posthorn.cursor_at('-infinity')")
}

func readRelayed(_, reader *session) reading {
	r := reader.relay(first)
	return reading{plan: leaseEvents, args: []any{planToken}, read: func() []int64 { return r.take(10).events }}
}

// An archive queries the log in several statements. All but the last, which records
// the events, are planned before.
func readArchived(s, reader *session) reading {
	const plan = "select posthorn.plan_archive($1)"
	archive := s.archive()
	reader.exec(plan, archive)
	s.define("{}")
	before := s.publish()
	wantEvents(s.t, reader.drain(), before)
	return reading{plan: plan, args: []any{archive}, read: func() []int64 {
		for range 3 { // also the end of its target
			reader.exec(plan, archive)
		}
		return column[int64](s, "select i from posthorn.archive_segments x cross join unnest(x.ids) i where i > $1", before)
	}}
}
