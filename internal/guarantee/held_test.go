package guarantee

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/test/await"
)

func TestHeldTransactionDoesNotBlockClaims(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{
		"snapshot":      "begin isolation level repeatable read; select count(*) from posthorn.events",
		"xid":           "begin; select pg_current_xact_id()",
		"publisher":     "begin; select posthorn.publish('default', 'never')",
		"reader":        "begin; select * from posthorn.leases, posthorn.cursors, posthorn.groups, posthorn.retries",
		"other claimer": "begin; select posthorn.claim('default', 'other', 'w')",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.define("{}")
			s.exec("select posthorn.define_group('default', 'other')")
			s.publish()
			s.drain()
			holder := s.another()
			holder.exec(sql)

			s.exec("set statement_timeout = '10s'; set lock_timeout = '1s'")
			for range 5 {
				event := s.publish()
				wantEvents(t, s.drain(), event)
			}
			s.exec("select posthorn.tend()")
		})
	}
}

// While a transaction holds its snapshot, no row can be removed. Claims do not read the
// retries that are done.
func TestClaimsPassOverDeadRetries(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"attempts": 100}`)
	holder := s.another()
	holder.exec("begin isolation level repeatable read; select count(*) from posthorn.retries")
	const batch, batches = 100, 20
	for range batches {
		s.publishMany(batch)
		l := s.claim(batch)
		for len(l.Events) == 0 {
			l = s.claim(batch)
		}
		var all []failure
		for _, event := range l.Events {
			all = append(all, failure{Event: event, RetryIn: "0"})
		}
		s.settle(l, all...)
	}
	s.drain()
	equal(t, "retries", value[int](s, "select count(*) from posthorn.retries"), 0)
	s.turnClock(time.Hour)
	read := func(sql string) int64 {
		s.exec("begin")
		defer s.exec("commit")
		before := value[int64](s, totalRead)
		s.exec(sql)
		return value[int64](s, totalRead) - before
	}
	for _, call := range []string{
		"select posthorn.claim('default', 'billing', 'w', 10)",
		"select posthorn.take(g.id, 'w', 10, '1 minute', gen_random_uuid()) from posthorn.groups g",
	} {
		await.True(t, "a claim that does not look from the beginning reads few rows: "+call, func() bool {
			s.publishMany(10)
			return read(call) < batch
		})
	}
	late := s.publish()
	s.drain()
	s.exec("insert into posthorn.retries (group_id, event_id, attempts, due_at) select id, $1, 1, '2020-01-01' from posthorn.groups", late)
	await.True(t, "a look from the beginning finds a retry that was due before", func() bool { return slices.Contains(s.claim(1).Events, late) })
}

// Claims of an ordered group pass over the retries that are done, whether slots are blocked or not.
func TestOrderedClaimsPassOverDeadRetries(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"order": "key", "on_failure": "block", "attempts": 100}`)
	holder := s.another()
	holder.exec("begin isolation level repeatable read; select count(*) from posthorn.retries")
	const slots, done = 16, 16000
	s.exec(`insert into posthorn.retries (group_id, event_id, attempts, due_at, slot)
		select g.id, -i, 1, now(), i % $1 from posthorn.groups g, generate_series(1, $2) i`, slots, done)
	s.exec("delete from posthorn.retries")
	s.exec("analyze posthorn.retries") // Postgres now believes that there are none
	claim := func(when string, want int) {
		t.Helper()
		s.exec("begin")
		defer s.exec("commit")
		before := value[int64](s, totalRead)
		equal(t, "events "+when, len(s.claim(1).Events), want)
		if rows := value[int64](s, totalRead) - before; rows > 20*slots {
			t.Errorf("%s, %d rows are read", when, rows)
		}
	}
	claim("while there is none", 0)
	for i := range 10 * slots {
		s.publishKey(strconv.Itoa(i))
	}
	blocked := 0
	for l := s.claim(1); len(l.Events) > 0; l = s.claim(1) {
		s.settle(l, failure{Event: l.Events[0], RetryIn: "1 minute"})
		blocked++
	}
	equal(t, "blocked slots", blocked, slots)
	claim("while none is due", 0)
	s.turnClock(time.Hour)
	claim("when they are due", 1)
}

// A look for expired leases and all due retries is repeated after a second, and later if it
// took long. After a clock has gone back it is repeated at once.
func TestLooksTakeAShareOfTheTime(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.publish()
	s.drain()
	const newest = " from posthorn.cursors order by n desc limit 1"
	equal(t, "the look is noted, with its time", value[bool](s, "select looked_at > at and looked_at < at + interval '10 seconds'"+newest), true)
	for after, want := range map[string]bool{"0": true, "-9 seconds": true, "11 seconds": false, "-1 hour": false} {
		got := value[bool](s, "select posthorn.has_looked(c, c.looked_at + $1::interval) from posthorn.cursors c order by n desc limit 1", after)
		equal(t, "a claim "+after+" after the look leaves it out", got, want)
	}
}

// Retries that fail again are looked up by their keys, also when Postgres believes that no
// retry is leased.
func TestFailuresOfRetriesReadFewRows(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"attempts": 100}`)
	const batch = 500
	failures := func(l lease) (all []failure) {
		for _, event := range l.Events {
			all = append(all, failure{Event: event, RetryIn: "0"})
		}
		return all
	}
	s.publishMany(batch)
	l := s.claim(batch)
	s.settle(l, failures(l)...)
	s.exec("vacuum (analyze) posthorn.retries")
	l = s.claim(batch)
	equal(t, "retries", len(l.Events), batch)
	s.exec("begin")
	before := value[int64](s, totalRead)
	s.settle(l, failures(l)...)
	if rows := value[int64](s, totalRead) - before; rows > 12*batch {
		t.Errorf("%d rows are read for %d failures", rows, batch)
	}
	s.exec("rollback")
}

// The process that leads webhooks knows up to when it has read what they are owed, and does
// not read events that were delivered again while a transaction holds its snapshot.
func TestWebhooksPassOverDeadRetries(t *testing.T) {
	t.Parallel()
	s := database(t)
	crm, w := s.webhook("{}")
	holder := s.another()
	holder.exec("begin isolation level repeatable read; select count(*) from posthorn.retries")
	const delivered = 2000
	owe := func(first, events int) {
		s.exec(`insert into posthorn.retries (group_id, event_id, subscription, attempts, due_at)
			select $1, $2 + n, 'crm', 1, now() - interval '1 hour' + n * interval '1 second' from generate_series(1, $3) n`, w.group, first, events)
	}
	owe(0, delivered)
	s.exec("delete from posthorn.retries")
	owe(delivered, 2)
	s.exec("update posthorn.retries set due_at = now() where event_id > $1", delivered)
	read := func(from string) (rows int64, events []int64) {
		s.exec("begin")
		defer s.exec("rollback")
		before := value[int64](s, totalRead)
		events = column[int64](s, `select event_id from posthorn.due_webhooks($1, $2, $3, array[$4::int], '{10}', '{}', '{}', array[now() + $5::interval])`,
			w.group, sender, w.epoch, crm, from)
		return value[int64](s, totalRead) - before, events
	}
	if rows, events := read("-1 second"); rows > 100 || len(events) != 2 {
		t.Errorf("%d rows are read for %d events, want less than 100 for 2", rows, len(events))
	}
	if rows, events := read("-1 day"); rows < delivered || len(events) != 2 {
		t.Errorf("%d rows are read for %d events from the beginning: the test says nothing", rows, len(events))
	}
}

// An ordered webhook gets events of as many slots as it has room for.
func TestOrderedWebhooksPassOverDeadRetries(t *testing.T) {
	t.Parallel()
	s := database(t)
	crm, w := s.webhook(`{"order": "key"}`)
	holder := s.another()
	holder.exec("begin isolation level repeatable read; select count(*) from posthorn.retries")
	const slots, delivered, room = 256, 256 * 40, 10
	owe := func(first, events int) {
		s.exec(`insert into posthorn.retries (group_id, event_id, subscription, attempts, due_at, slot)
			select $1, $2 + n, 'crm', 1, now(), posthorn.webhook_slot($3, n % $4) from generate_series(1, $5) n`, w.group, first, crm, slots, events)
	}
	owe(0, delivered)
	s.exec("delete from posthorn.retries")
	for _, owed := range []int{slots, 1} {
		owe(delivered, owed)
		s.exec("begin")
		before := value[int64](s, totalRead)
		events := column[int64](s, `select event_id from posthorn.due_webhooks($1, $2, $3, array[$4::int], array[$5::int], '{}', '{}')`, w.group, sender, w.epoch, crm, room)
		rows := value[int64](s, totalRead) - before
		s.exec("rollback")
		equal(t, "events", len(events), min(owed, room))
		if rows > 8*slots {
			t.Errorf("%d rows are read for %d events", rows, len(events))
		}
		s.exec("delete from posthorn.retries")
	}
}

// An ordered webhook that is owed many events of each slot gets events of as many slots as it
// may have requests at once, since those of a slot are sent one after another. If a slot alone
// owes events, they fill the room.
func TestOrderedWebhooksGetEventsOfManySlots(t *testing.T) {
	t.Parallel()
	s := database(t)
	crm, w := s.webhook(`{"order": "key", "concurrency": 10}`)
	const room = 20
	for slots, want := range map[int]int{100: 10, 1: 1} {
		s.exec(`insert into posthorn.retries (group_id, event_id, subscription, attempts, due_at, slot)
			select $1, n, 'crm', 1, now(), posthorn.webhook_slot($2, n % $3) from generate_series(1, 4000) n`, w.group, crm, slots)
		due := column[int64](s, `select slot from posthorn.due_webhooks($1, $2, $3, array[$4::int], array[$5::int], '{}', '{}')`, w.group, sender, w.epoch, crm, room)
		slices.Sort(due)
		equal(t, "events", len(due), room)
		equal(t, fmt.Sprintf("slots of %d", slots), len(slices.Compact(due)), want)
		s.exec("delete from posthorn.retries")
	}
}

// When an ordered webhook is owed nothing, the process that leads asks for all its slots at once, until one of them gets
// an event, also from a transaction that is open while it asks.
func TestSlotsOfAWebhookAreQuietTogether(t *testing.T) {
	t.Parallel()
	s := database(t)
	crm, w := s.webhook(`{"order": "key"}`)
	owe := func(s *session, first, events int) {
		s.exec(`insert into posthorn.retries (group_id, event_id, subscription, attempts, due_at, slot)
			select $1, $2 + n, 'crm', 1, now() - interval '1 second', posthorn.webhook_slot($3, n) from generate_series(0, $4 - 1) n`, w.group, first, crm, events)
	}
	owing := func() []int {
		return value[[]int](s, "select coalesce(owing, '{}') from posthorn.look_at_webhooks($1, $2, $3)", w.group, sender, w.epoch)
	}
	quiet := func() bool {
		return value[bool](s, "select posthorn.is_quiet($1, posthorn.webhook_slot($2, 0))", w.group, crm)
	}
	owe(s, 0, 256)
	equal(t, "owing", owing(), []int{crm})
	s.exec("delete from posthorn.retries")
	other := s.another()
	other.exec("begin")
	owe(other, 1000, 1)
	equal(t, "owing, before an event is committed", owing(), []int{})
	equal(t, "quiet then", quiet(), false)
	other.exec("commit")
	equal(t, "due", w.due(crm), []int64{1000})
	s.exec("delete from posthorn.retries")
	equal(t, "owing nothing", owing(), []int{})
	equal(t, "quiet", quiet(), true)
	equal(t, "due", w.due(crm), []int64{})
	owe(s, 2000, 1)
	equal(t, "owing again", owing(), []int{crm})
	equal(t, "due again", w.due(crm), []int64{2000})
}

// What is called rarely reads few rows behind the dead rows of much work. Each user of the places where looks begin has
// its line. Looks from the beginning are left out here: TestLooksFromTheBeginningAreRare counts them.
func TestRareCallsPassOverDeadRows(t *testing.T) {
	t.Parallel()
	const done, calls, most = 6000, 5, 800
	for name, user := range map[string]struct{ prepare, work, call string }{
		"claim_jobs": {
			"select posthorn.enqueue('default', 'x', tags => '{t}') from generate_series(1, $1)",
			"select count(*) from generate_series(1, $1 / 100) i, posthorn.claim_jobs('default', 'w', '{t}', 100 + 0 * i) j",
			"select posthorn.claim_jobs('default', 'w', '{t}', 1)",
		},
		"claim_jobs of many tags": {
			"select posthorn.enqueue('default', 'x', tags => array['t', 'u']) from generate_series(1, $1)",
			"select count(*) from generate_series(1, $1 / 100) i, posthorn.claim_jobs('default', 'w', '{t,u}', 100 + 0 * i) j",
			"select posthorn.claim_jobs('default', 'w', '{t,u}', 1)",
		},
		"claim_jobs of fair keys": {
			"select posthorn.enqueue('default', 'x', tags => '{t}', fair_key => (i % 10)::text) from generate_series(1, $1) i",
			"select count(*) from generate_series(1, $1 / 100) i, posthorn.claim_jobs('default', 'w', '{t}', 100 + 0 * i) j",
			"select posthorn.claim_jobs('default', 'w', '{t}', 1)",
		},
		"claim: leases": {
			"select posthorn.define_group('default', 'g' || $1::int)",
			`with l as (
				insert into posthorn.leases (group_id, namespace_id, token, node, until, ids)
				select g.id, g.namespace_id, gen_random_uuid(), 'w', now() - interval '1 hour', array[i] from posthorn.groups g, generate_series(1, $1) i
				returning id)
			select count(*) from l`,
			"select posthorn.claim('default', 'g6000', 'w')",
		},
		"claim: retries": {
			"select posthorn.define_group('default', 'g' || $1::int)",
			"insert into posthorn.retries (group_id, event_id, attempts, due_at) select g.id, i, 1, now() - interval '1 hour' from posthorn.groups g, generate_series(1, $1) i",
			"select posthorn.claim('default', 'g6000', 'w')",
		},
		"claim of an ordered group": {
			`select posthorn.define_group('default', 'g' || $1::int, '{"order": "key", "on_failure": "block"}')`,
			"insert into posthorn.retries (group_id, event_id, attempts, due_at, slot) select g.id, i, 1, now(), i % 16 from posthorn.groups g, generate_series(1, $1) i",
			"select posthorn.claim('default', 'g6000', 'w')",
		},
		"claim of an ordered group: waiting leases": {
			`select posthorn.define_group('default', 'g' || $1::int, '{"order": "key", "on_failure": "block"}')`,
			`with l as (
				insert into posthorn.leases (group_id, namespace_id, attempt, slot, ids)
				select g.id, g.namespace_id, 0, i % 16, array[i] from posthorn.groups g, generate_series(1, $1) i
				returning id)
			select count(*) from l`,
			"select posthorn.claim('default', 'g6000', 'w')",
		},
		"due_webhooks": {
			`select posthorn.create_webhook('default', 'crm', '{"url": "https://x.example/", "order": "key"}'), $1::int`,
			`insert into posthorn.retries (group_id, event_id, subscription, attempts, due_at, slot)
				select w.group_id, i, 'crm', 0, now(), posthorn.webhook_slot(w.id, i % 256) from posthorn.webhooks w, generate_series(1, $1) i`,
			`select posthorn.due_webhooks(w.group_id, '` + sender + `', l.epoch, array[w.id], '{10}', '{}', '{}') from posthorn.webhooks w, posthorn.leads l`,
		},
		"look_at_webhooks": {
			`select posthorn.create_webhook('default', 'crm', '{"url": "https://x.example/", "order": "key"}'), $1::int`,
			`insert into posthorn.retries (group_id, event_id, subscription, attempts, due_at, slot)
				select w.group_id, i, 'crm', 0, now(), posthorn.webhook_slot(w.id, i % 256) from posthorn.webhooks w, generate_series(1, $1) i`,
			`select posthorn.look_at_webhooks(w.group_id, '` + sender + `', l.epoch) from posthorn.webhooks w, posthorn.leads l`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			holder := s.another()
			holder.exec("begin isolation level repeatable read; select count(*) from posthorn.retries")
			s.exec(user.prepare, done)
			s.exec("select posthorn.lead_webhooks(group_id, $1, '1 day') from posthorn.webhook_groups", sender)
			s.exec(user.work, done)
			s.exec("delete from posthorn.leases")
			s.exec("delete from posthorn.retries")
			s.exec("analyze posthorn.retries; analyze posthorn.leases; analyze posthorn.ready_jobs") // all rows are dead
			for i := range calls {
				s.turnClock(time.Duration(i) * time.Minute)
				s.exec("update posthorn.job_hints set until = clock_timestamp(), dead = 2147483647")
				s.exec("update posthorn.cursors set dead = 2147483647 where dead is not null")
				s.exec("select setval('posthorn.expire_jobs_from', (extract(epoch from posthorn.now() + interval '5 seconds') * 1000)::bigint)") // that look reads all jobs that run
				s.exec("begin")
				before := value[int64](s, totalRead)
				s.exec(user.call)
				read, of := value[int64](s, totalRead)-before, value[string](s, mostRead)
				s.exec("commit")
				if i > 1 && read > most { // the first calls move the place: not beyond a moment before now, or the clock of turns
					t.Errorf("%d rows and entries are read (%s), and at most %d are expected", read, of, most)
				}
			}
		})
	}
}

// A look from the beginning that passes over many dead entries is made so seldom that all looks pass over 300 each, on
// average.
func TestLooksFromTheBeginningAreRare(t *testing.T) {
	t.Parallel()
	s := database(t)
	for _, dead := range []int{100, 1000, 10000, 100000} {
		looks := value[int](s, `select count(*) from generate_series(1, 20000) i
			where posthorn.is_turn_to_look_back($1, 'place', '2020-01-01'::timestamptz + i * interval '1 second')`, dead)
		if mean := looks * dead / 20000; mean < min(dead, 240) || mean > 360 {
			t.Errorf("%d of 20000 looks pass over %d entries: %d each", looks, dead, mean)
		}
	}
}

// While a transaction holds its snapshot, looks begin behind dead rows. A lease and a retry whose times are before that
// place, and which are committed later, are found when upkeep has looked there.
func TestLateRowsBeforeAPlaceAreFound(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	holder := s.another()
	holder.exec("begin isolation level repeatable read; select count(*) from posthorn.retries")
	event := s.publish()
	s.drain()
	s.exec("insert into posthorn.retries (group_id, event_id, attempts, due_at) select g.id, -i, 1, now() from posthorn.groups g, generate_series(1, 20000) i")
	s.exec("delete from posthorn.retries")
	s.turnClock(time.Hour)
	s.claim(1)
	for name, late := range map[string]string{
		"retry": "insert into posthorn.retries (group_id, event_id, attempts, due_at) select id, $1, 1, '2020-01-01' from posthorn.groups",
		"lease": "insert into posthorn.leases (group_id, namespace_id, token, node, until, ids) select id, namespace_id, gen_random_uuid(), 'w', '2020-01-01', array[$1::bigint] from posthorn.groups",
	} {
		s.exec(late, event)
		s.lookBeforePlaces()
		l := s.claim(1)
		equal(t, name, l.Events, []int64{event})
		s.settle(l)
		s.claim(1)
	}
}

// A slot is blocked by each of its retries, also by one that comes back before the place where searches of the slot
// begin, and one that another transaction writes while the retries behind it end.
func TestSlotsAreBlockedByRetriesBeforeTheirPlace(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"order": "total", "on_failure": "block"}`)
	retry := func(s *session, event int64) {
		s.exec("insert into posthorn.retries (group_id, event_id, attempts, due_at, slot) select id, $1, 1, now() + interval '1 hour', 0 from posthorn.groups", event)
	}
	done := func(s *session, event int64) { s.exec("delete from posthorn.retries where event_id = $1", event) }
	blocked := func(when string, want bool) {
		t.Helper()
		equal(t, "blocked "+when, value[bool](s, "select posthorn.has_blocked_slots(id) from posthorn.groups"), want)
	}
	retry(s, 100)
	blocked("by a retry", true)
	done(s, 100)
	blocked("by none", false)
	retry(s, 50)
	blocked("by an earlier one", true)
	done(s, 50)
	retry(s, 200)
	other := s.another()
	other.exec("begin")
	retry(other, 150)
	done(s, 200)
	blocked("by one that is not committed", false)
	other.exec("commit")
	blocked("by one that is committed late", true)
	done(s, 150)

	retry(s, 300)
	other.exec("begin")
	done(other, 300)
	late := s.another()
	written := late.background("insert into posthorn.retries (group_id, event_id, attempts, due_at, slot) select id, 250, 1, now() + interval '1 hour', 0 from posthorn.groups")
	s.awaitBlocked(late)
	other.exec("commit")
	if err := written(); err != nil {
		t.Fatal(err)
	}
	blocked("by one that waited until the place was moved", true)
	done(s, 250)
	s.exec("select posthorn.sweep_slot_places()")
	equal(t, "places of free slots", value[int](s, "select count(*) from posthorn.slot_places"), 0)
}

// A lease whose workers died twice is split into retries. They were due when it expired, and
// claims find all of them at once.
func TestRetriesOfASplitLeaseAreFoundAtOnce(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.publishMany(5)
	for death := range 2 {
		l := s.claim(5)
		for len(l.Events) == 0 {
			l = s.claim(5)
		}
		equal(t, "claimed", len(l.Events), 5)
		s.turnClock(time.Duration(1+death) * time.Hour)
	}
	found := 0
	for range 5 {
		found += len(s.claim(5).Events)
	}
	equal(t, "parts in as many claims", found, 5)
}

func TestClaimsAreRefusedAboveReadCommitted(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.define("{}")
			for _, sql := range []string{
				"select posthorn.claim('default', 'billing', 'w')",
				"select posthorn.take(g.id, 'w', 10, '1 minute', gen_random_uuid()) from posthorn.groups g",
				"select posthorn.seek('default', 'billing', 'infinity')",
				"select posthorn.read_events('default', posthorn.cursor_at('infinity'))",
			} {
				s.exec("begin isolation level " + level)
				s.refused("PH005", sql)
				s.exec("rollback")
			}
		})
	}
}

func TestPublishingWorksAtEveryLevel(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		s.exec("begin isolation level " + level)
		id := s.publish()
		s.exec("commit")
		wantEvents(t, s.drain(), id)
	}
}

// A retry that somebody changes while a claim takes it belongs to the claim all the same. The
// events behind it in its slot would overtake it otherwise.
func TestClaimTakesRetriesThatAreChangedMeanwhile(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"order": "key", "on_failure": "block", "attempts": 100}`)
	events := []int64{s.publishKey("a"), s.publishKey("a"), s.publishKey("a")}
	l := s.claim(3)
	s.settle(l, failure{Event: events[0], RetryIn: "0"}, failure{Event: events[1], RetryIn: "0"}, failure{Event: events[2], RetryIn: "0"})
	equal(t, "retries", value[int](s, "select count(*) from posthorn.retries"), len(events))
	other, claimer := s.another(), s.another()
	other.exec("begin")
	other.exec("update posthorn.retries set attempts = 0, due_at = due_at - interval '1 second' where event_id = $1", events[1]) // as redrive does
	claimed := claimer.background("select posthorn.claim('default', 'billing', 'w', 3)")
	s.awaitBlocked(claimer)
	other.exec("commit")
	if err := claimed(); err != nil {
		t.Fatal(err)
	}
	equal(t, "events that the lease has", column[int64](s, `select r.event_id from posthorn.retries r join posthorn.leases l on l.id = r.lease_id
		order by r.event_id`), events)
}
