package guarantee

import (
	"cmp"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/test/testsize"
)

// plenty is the number of unrelated rows of each kind, and many the size of a large window.
const plenty, many = 4000, 500

// rush inserts rows into tables that are nearly empty at times.
var rush = []string{
	`insert into posthorn.leases (group_id, namespace_id, token, node, until, base, target, lo, hi, since)
		select g.id, g.namespace_id, gen_random_uuid(), 'other', now() + interval '3 months', '1:1:', '1:1:', 0, 0, '-infinity'
		from posthorn.groups g, generate_series(1, $1) where g.name in ('plain', 'wanted')`,
	`insert into posthorn.leases (group_id, namespace_id, ids, slot)
		select g.id, g.namespace_id, array_fill(0, array[1000]), i from posthorn.groups g, generate_series(0, $1 / 250 - 1) i where g.ordering = 'key'`,
	`insert into posthorn.retries (group_id, event_id, attempts, due_at)
		select g.id, -i, 1, now() + interval '3 months' from posthorn.groups g, generate_series(1, $1) i where g.name in ('plain', 'wanted', 'reader')`,
	`insert into posthorn.retries (group_id, event_id, attempts, due_at, slot)
		select g.id, -i, 1, now() + interval '3 months', i % 16 from posthorn.groups g, generate_series(1, $1) i where g.ordering = 'key'`,
	`insert into posthorn.dead_letters (namespace_id, group_id, event_id, stream_id, type, tags, payload, metadata, published_at, attempts, reason)
		select g.namespace_id, g.id, -i, 0, 'e', '{}', '{}', '{}', now(), 1, 'test'
		from posthorn.groups g, generate_series(1, $1) i where g.name = 'plain'`,
	`insert into posthorn.delayed (id, namespace_id, stream_id, type, tags, payload, metadata, deliver_at)
		select -i, n.id, 0, 'e', '{}', '{}', '{}', now() + interval '3 months' from posthorn.namespaces n, generate_series(1, $1) i where n.namespace = 'default'`,
	`insert into posthorn.dedup_keys (namespace_id, dedup_key, stream_id, event_id, expires_at)
		select n.id, 'key-' || i, 0, -i, now() + interval '3 months' from posthorn.namespaces n, generate_series(1, $1) i where n.namespace = 'default'`,
	`insert into posthorn.running_jobs (job, picked_at, picked_log, seen_at, lease_until, lease_for, namespace_id, month, attempt, worker)
		select -i, now(), -i, now(), now() + interval '3 months', '1 hour', n.id, now(), 1, 'w' from posthorn.namespaces n, generate_series(1, $1) i where n.namespace = 'default'`,
	`insert into posthorn.retried_jobs (job, attempt, updated_at) select -i, 1, now() from generate_series(1, $1) i`,
	`insert into posthorn.relayed (group_id, stream_id, first_id, last_id, at, epoch)
		select g.id, -i, -i, -i, now(), 1 from posthorn.groups g, generate_series(1, $1) i where g.name = 'out'`,
	`insert into posthorn.ready_jobs (namespace_id, rank, turn, job, month, attempt, plain, fair, tag, fair_key)
		select n.id, 0, now(), -i, now(), 0, true, false, 't', '' from posthorn.namespaces n, generate_series(1, $1) i where n.namespace = 'other'`,
	`insert into posthorn.ready_jobs (namespace_id, rank, turn, job, month, attempt, plain, fair, tag, fair_key)
		select n.id, 0, now() + interval '1 hour' + i * interval '1 second', -1000000 - i, now(), i % 2, true, true, 'fair', 'crowd'
		from posthorn.namespaces n, generate_series(1, $1) i where n.namespace = 'default'`,
	`insert into posthorn.fair_clocks (namespace_id, tag, rank, turn)
		select n.id, 'fair', 0, now() - i * interval '1 day' from posthorn.namespaces n, generate_series(1, $1) i where n.namespace = 'default'`,
	`insert into posthorn.waiting_jobs (due_at, job, namespace_id, month)
		select now() + interval '3 months', -i, n.id, now() from posthorn.namespaces n, generate_series(1, $1) i where n.namespace = 'default'`,
	`insert into posthorn.parked_jobs (namespace_id, rank, turn, job, month, fair, tag)
		select n.id, 0, now(), -i, now(), false, 'held' from posthorn.namespaces n, generate_series(1, $1) i where n.namespace = 'default'`,
	`insert into posthorn.job_keys (namespace_id, unique_key, job) select n.id, 'key-' || i, -i from posthorn.namespaces n, generate_series(1, $1) i where n.namespace = 'default'`,
	`insert into posthorn.blocked_jobs (job, namespace_id, month) select -i, n.id, now() from posthorn.namespaces n, generate_series(1, $1) i where n.namespace = 'default'`,
	`insert into posthorn.awaited_jobs (before, job, before_month) select -i - 1, -i, now() from generate_series(1, $1) i`,
	`insert into posthorn.running_tags (namespace_id, tag, job) select n.id, 'held', -i from posthorn.namespaces n, generate_series(1, $1) i where n.namespace = 'default'`,
	`insert into posthorn.job_limits (namespace_id, tag, max_running) select n.id, case i % 2 when 0 then 'mine' || i || '*' else 'own' || i end, 5
		from posthorn.namespaces n, generate_series(1, $1 / 16) i where n.namespace = 'default' on conflict do nothing`,
	`insert into posthorn.running_tags (namespace_id, tag, job) select n.id, 'many:' || i, -$1 - i from posthorn.namespaces n, generate_series(1, $1 / 16) i
		where n.namespace = 'default' on conflict do nothing`,
	`insert into posthorn.job_openings (namespace_id, tag, at) select n.id, 'held', now() + interval '3 months' from posthorn.namespaces n, generate_series(1, $1) i where n.namespace = 'default'`,
}

// manyEvents publishes events with ten keys, into a hundred streams.
func manyEvents(namespace string) string {
	return `select count(*) from generate_series(0, $1 - 1, 1000) n, posthorn.publish_many('` + namespace + `', (
		select jsonb_agg(jsonb_build_object('type', 'e', 'stream', 's' || i % 100, 'key', 'k' || i % 10)) from generate_series(n, n + 999) i))`
}

// obstacles insert rows that are unrelated to a call, or not due yet.
var obstacles = append(slices.Clone(rush),
	`insert into posthorn.retries (group_id, event_id, subscription, attempts, due_at)
		select g.id, -i, 'slow', 0, now() - interval '1 hour' from posthorn.groups g, generate_series(1, $1) i where g.name = 'webhooks'`,
	`insert into posthorn.retries (group_id, event_id, subscription, attempts, due_at, slot)
		select w.group_id, -i, w.name, 0, now() - interval '1 hour', posthorn.webhook_slot(w.id, 7) from posthorn.webhooks w, generate_series(1, $1) i where w.ordering = 'key'`,
	`insert into posthorn.dead_letters (namespace_id, group_id, subscription, event_id, stream_id, type, tags, payload, metadata, published_at, attempts, reason)
		select g.namespace_id, g.id, 'gone', -i, 0, 'e', '{}', '{}', '{}', now(), 1, 'test' from posthorn.groups g, generate_series(1, $1) i where g.name = 'webhooks'`,
	`insert into posthorn.api_tokens (name, hash, prefix, scopes) select 't' || i, sha256(i::text::bytea), 'p' || i, '{admin}' from generate_series(1, $1) i`,
	`select count(posthorn.schedule('default', 's' || i, '@yearly', 'e')) from generate_series(1, $1 / 4) i`,
	manyEvents("other"),
	manyEvents("default"),
	`select count(posthorn.enqueue('other', 'x', tags => '{t}')) from generate_series(1, $1) i`,
	`select count(posthorn.enqueue('default', 'x', tags => '{slow}', run_at => now() + interval '3 months')) from generate_series(1, $1) i`,
	`select count(posthorn.subscribe('default', 'wanted', 's' || i, jsonb_build_object('key', jsonb_build_array('none-' || i)))) from generate_series(1, $1 / 4) i`,
)

const tables = "select c.oid::regclass::text from pg_class c where c.relnamespace = 'posthorn'::regnamespace and c.relkind = 'r'"

// crowd makes one thing of each kind, and events for all who read the log.
func (s *session) crowd() {
	s.t.Helper()
	for _, sql := range slices.Concat([]string{
		"create table public.shop (id int)",
		"create table public.pushed (id int)",
		"select posthorn.push_table_changes('public.pushed')",
		"select posthorn.define_namespace('other')",
		"select posthorn.define_group('default', 'plain')",
		"select posthorn.define_group('default', 'small')",
		`select posthorn.define_group('default', 'keyed', '{"order": "key", "on_failure": "block", "read_ahead": 500}')`,
		"select posthorn.define_group('default', 'wanted')",
		"select posthorn.subscribe('default', 'wanted', 'w', '{}')",
		"select posthorn.define_group('default', 'fussy')",
		`select posthorn.subscribe('default', 'fussy', 'f', '{"conditions_sql": "e.key is not null"}')`,
		"select posthorn.define_group('default', 'reader')",
		"select posthorn.define_projection('default', 'view')",
		"select posthorn.define_relay('default', 'out')",
		"select posthorn.define_import('default', 'in', 'nats://host', 'nats')",
		"select posthorn.define_archive('default', 'cold', 'file:///cold', '{\"segment_age\": \"0\"}')",
		`select posthorn.create_webhook('default', n, jsonb_build_object('url', 'https://example.com', 'order', case n when 'keyed' then 'key' else 'none' end))
			from unnest('{quick,slow,keyed}'::text[]) n`,
		"select posthorn.schedule('default', 'daily', '@daily', 'e')",
		"select posthorn.register_node('default', 'n')",
		"select posthorn.create_token('t', sha256('t'), 'p', '{admin}')",
		"select posthorn.set_stream_policy('default', 'secret', 'confidential')",
		`select posthorn.add_stream_key('default', 'secret', 1, '', '\x01')`,
		"select posthorn.set_job_limit('default', 'limited', max_running => 5)",
		"select posthorn.set_job_limit('default', 'many:*', max_running => 5)",
		"select posthorn.publish('default', 'e', key => 'k' || i) from generate_series(1, 3) i",
	}, someWork) {
		s.exec(sql)
	}
	for _, table := range column[string](s, tables) {
		s.exec("alter table " + table + " set (autovacuum_enabled = off)")
	}
}

// someWork makes jobs in each state, and a dead letter.
var someWork = []string{
	"select posthorn.enqueue('default', 'x', tags => array[t]) from unnest('{fails,runs,waits}'::text[]) t",
	"select posthorn.fail_job(j.id, 'w', 'broken', permanent => true) from posthorn.claim_jobs('default', 'w', '{fails}', 1) j",
	"select posthorn.claim_jobs('default', 'w', '{runs}', 1, '1 day')",
	"select posthorn.enqueue('default', 'x', tags => '{blocked}', after => array(select id from posthorn.enqueued_jobs where tags && '{fails,runs}'))",
	`select posthorn.settle(c.lease, c.attempt, jsonb_build_array(jsonb_build_object('event', c.event_id, 'permanent', true)))
		from posthorn.claim('default', 'plain', 'w', 1) c`,
}

const moreJobs = "select posthorn.enqueue('default', 'x', tags => array[t]) from generate_series(1, 5) i, unnest('{t,limited,many:1}'::text[]) t;" +
	"select posthorn.enqueue('default', 'x', tags => array['fair'], fair_key => 'key ' || i) from generate_series(1, 5) i"

// crowdIn inserts the obstacles, and work before and after them.
func (s *session) crowdIn() {
	s.t.Helper()
	s.exec("select posthorn.publish('default', 'e', key => 'k' || i) from generate_series(1, 50) i")
	s.exec(moreJobs)
	for _, sql := range obstacles {
		s.exec(sql, plenty)
	}
	s.exec("select posthorn.publish('default', 'e', key => 'k' || i) from generate_series(1, 50) i")
	s.exec(moreJobs)
}

// totalRead is the number of rows and index entries that the transaction has read.
const totalRead = `select sum(pg_stat_get_xact_tuples_returned(c.oid))::bigint from pg_class c where c.relnamespace = 'posthorn'::regnamespace`

// mostRead names the tables and indexes of which the transaction has read most.
const mostRead = `
	select string_agg(format('%s of %s', n, name), ', ') from (
		select c.oid::regclass as name, pg_stat_get_xact_tuples_returned(c.oid) as n from pg_class c where c.relnamespace = 'posthorn'::regnamespace order by 2 desc limit 3) x`

// names returns a replacer of the words in calls that name things of crowd.
func (s *session) names() *strings.Replacer {
	s.t.Helper()
	words := []string{"$lease", "8c1fcb0e-0000-4000-8000-000000000001", "$many", strconv.Itoa(many)}
	for word, sql := range map[string]string{
		"$plain": groupID("plain"), "$wanted": groupID("wanted"), "$fussy": groupID("fussy"), "$out": groupID("out"), "$webhooks": groupID("webhooks"),
		"$import": "select id from posthorn.imports", "$archive": "select id from posthorn.archives",
		"$condition": "select id from posthorn.conditions where sql is not null",
		"$event":     "select min(id) from posthorn.events where namespace_id = posthorn.namespace_id('default')",
		"$dead":      "select max(id) from posthorn.dead_letters where reason <> 'test'",
		"$token":     "select min(id) from posthorn.api_tokens",
		"$task":      "select task_id from posthorn.scheduled_tasks where name = 'daily'",
		"$failed":    jobID("fails"), "$running": jobID("runs"), "$pending": jobID("waits"), "$blocked": jobID("blocked"),
	} {
		words = append(words, word, value[string](s, "select ("+sql+")::text"))
	}
	return strings.NewReplacer(words...)
}

func groupID(name string) string { return "select id from posthorn.groups where name = '" + name + "'" }

func jobID(tag string) string {
	return "select max(id) from posthorn.enqueued_jobs where tags = '{" + tag + "}'"
}

// countCalls is the number of calls in everyday and programs.
func countCalls() (n int) {
	for _, c := range everyday {
		n += len(c.statements)
	}
	for _, calls := range programs {
		n += len(calls)
	}
	return n
}

// makeCalls makes the chosen calls, by their numbers. If report is not nil, it is called with
// each one that reads more rows and index entries than it may, and the tables and indexes of
// which it has read most.
func (s *session) makeCalls(chosen map[int]bool, report func(call string, rows, most int64, tables string)) {
	s.t.Helper()
	number := -1
	measured := func(before, name string, most int64, call func() error) {
		// A look for expired jobs reads all that run. Calls seldom make it, and here they do not.
		s.exec("select setval('posthorn.expire_jobs_from', (extract(epoch from posthorn.now() + interval '5 seconds') * 1000)::bigint)")
		if report != nil {
			s.exec("select pg_stat_force_next_flush()")
		}
		s.exec("begin")
		var start int64 // nothing, since the transaction has begun with the call
		if before != "" {
			s.exec(before)
			start = value[int64](s, totalRead)
		}
		if err := call(); err != nil {
			s.t.Fatalf("%s: %v", name, err)
		}
		if report != nil {
			if rows := value[int64](s, totalRead) - start; rows > most {
				report(name, rows, most, value[string](s, mostRead))
			}
		}
		s.exec("rollback")
	}
	names := s.names()
	for _, c := range everyday {
		for _, sql := range c.statements {
			if number++; !chosen[number] {
				continue
			}
			measured(names.Replace(c.before), sql, cmp.Or(c.reads, few), func() error {
				rows, _ := s.conn.Query(s.t.Context(), names.Replace(sql)) // prepared, so that the plan is kept
				rows.Close()
				return rows.Err()
			})
		}
	}
	for _, most := range slices.Sorted(maps.Keys(programs)) {
		for _, name := range slices.Sorted(maps.Keys(programs[most])) {
			if number++; !chosen[number] {
				continue
			}
			call := programs[most][name]
			measured("", name, most, func() error { return call(caller{s.t.Context(), admin.New(s.conn, "default"), s.conn}) })
		}
	}
}

// callers are two sessions: one with the settings of the server, as behind a pooler, which
// keeps no plans of its own, and one with the settings that the pool of a program has.
type callers struct {
	sessions [2]*session
	chosen   chosenCalls
}

// chosenCalls are the numbers of the calls that each of the callers makes.
type chosenCalls [2]map[int]bool

// chooseCalls chooses the calls for each of so many states: all of them for both callers in
// make test-all, and otherwise each call in each state for one of the two.
func chooseCalls(states int) []chosenCalls {
	all := make([]chosenCalls, states)
	for i := range all {
		all[i] = chosenCalls{{}, {}}
	}
	for _, row := range testsize.Rows(states, len(chosenCalls{}), countCalls()) {
		all[row[0]][row[1]][row[2]] = true
	}
	return all
}

func (s *session) callers(chosen chosenCalls) callers {
	s.t.Helper()
	config, err := pgxpool.ParseConfig(s.conn.Config().ConnString())
	if err != nil {
		s.t.Fatal(err)
	}
	pool, err := pg.Open(s.t.Context(), config, slog.New(slog.DiscardHandler))
	if err != nil {
		s.t.Fatal(err)
	}
	defer pool.Close()
	program := s.another()
	for name, setting := range pool.Config().ConnConfig.RuntimeParams {
		program.exec("select set_config($1, $2, false)", name, setting)
	}
	address, err := url.Parse(s.conn.Config().ConnString())
	if err != nil {
		s.t.Fatal(err)
	}
	query := address.Query()
	query.Set("default_query_exec_mode", "cache_describe")
	address.RawQuery = query.Encode()
	return callers{[2]*session{connect(s.t, address.String()), program}, chosen}
}

// plan makes the calls so often that their plans are kept.
func (c callers) plan() callers {
	for i, s := range c.sessions {
		for range []int{6, 1}[i] { // with the settings of a program the first plan is kept
			s.makeCalls(c.chosen[i], nil)
		}
	}
	return c
}

func (c callers) readFew(when string) {
	for i, s := range c.sessions {
		settings := []string{"of the server", "of a program"}[i]
		s.t.Helper()
		s.makeCalls(c.chosen[i], func(call string, rows, most int64, tables string) {
			s.t.Errorf("%s, with the settings %s: %d rows are read (%s), and at most %d are needed, by: %s", when, settings, rows, tables, most, call)
		})
	}
}

// A session makes a plan once and keeps it. So each plan must be good whatever the
// tables contained when it was made: nothing, many rows, or only dead rows.
func TestCallsReadFewRows(t *testing.T) {
	t.Parallel()
	states := map[string]func(s *session, chosen chosenCalls){
		"analysed later": func(s *session, chosen chosenCalls) {
			s.crowd()
			s.crowdIn()
			s.callers(chosen).readFew("never analysed")
			s.exec("analyze")
			s.callers(chosen).readFew("analysed")
		},
		"analysed while empty": func(s *session, chosen chosenCalls) {
			s.exec("analyze")
			s.crowd()
			s.crowdIn()
			s.callers(chosen).readFew("analysed while empty")
		},
		"analysed with three events": func(s *session, chosen chosenCalls) {
			s.crowd()
			s.exec("analyze")
			old := s.callers(chosen).plan()
			s.crowdIn()
			s.callers(chosen).readFew("analysed with three events")
			old.readFew("plans of when there were three events")
		},
		"before and after a rebase": func(s *session, chosen chosenCalls) {
			s.crowd()
			s.crowdIn()
			s.exec("analyze")
			old := s.callers(chosen).plan()
			s.exec("delete from posthorn.leases where lo = 0 or ids[1] = 0") // those of the obstacles have no events
			s.exec("vacuum posthorn.leases")
			s.exec("select posthorn.rebase(force => true)")
			s.exec(manyEvents("default"), plenty)
			old.readFew("after a rebase, with plans of before")
			s.callers(chosen).readFew("after a rebase")
		},
		"before and after a switch of partitions": func(s *session, chosen chosenCalls) {
			const each = 2 * time.Hour
			for _, key := range []string{"partition_interval", "future_intervals_to_create", "partition_retention_period", "retention_hard_limit"} {
				s.exec("update posthorn.config set value = '2 hours' where key = $1", key)
			}
			month := value[time.Time](s, "select min(upto) from posthorn.partition_bounds where upto > posthorn.now()") // short ones begin behind it
			s.exec("select posthorn.maintain_events_table()")                                                           // drops the months to come
			later := time.Until(month) + each/4
			s.turnClock(later)
			s.exec("select posthorn.maintain_events_table()")
			s.crowd()
			s.crowdIn()
			s.exec("analyze") // the next partition is empty
			old := s.callers(chosen).plan()
			s.turnClock(later + each)
			s.exec(manyEvents("default"), plenty)
			equal(s.t, "partitions with events", value[int](s, "select count(distinct tableoid) from posthorn.events"), 2)
			old.readFew("after a switch of partitions, with plans of before")
			s.turnClock(later + 2*each)
			equal(s.t, "dropped partitions", value[int](s, "select count(*) from posthorn.maintain_events_table() where action = 'dropped'"), 2) // that of the month, and the first short one
			for range 2 {                                                                                                                        // the windows of the dropped partition are empty
				s.exec("select count(*) from unnest('{plain,keyed,wanted,fussy}'::text[]) g, posthorn.claim('default', g, 'w', 10)")
			}
			old.readFew("after a partition was dropped, with plans of before")
			s.callers(chosen).readFew("after a partition was dropped")
		},
		"plans of after a rush": func(s *session, chosen chosenCalls) {
			s.crowd()
			const crowded = tables + ` and c.relname in ('leases', 'retries', 'dead_letters', 'delayed', 'dedup_keys', 'relayed',
				'ready_jobs', 'waiting_jobs', 'parked_jobs', 'running_jobs', 'retried_jobs', 'job_keys', 'running_tags', 'fair_clocks', 'blocked_jobs', 'awaited_jobs')`
			other := s.another()
			other.crowdIn()
			for _, table := range column[string](other, crowded) {
				other.exec("delete from " + table)
				other.exec("vacuum analyze " + table)
			}
			for _, sql := range rush {
				other.exec(sql, 1)
			}
			for _, table := range column[string](other, crowded) {
				other.exec("vacuum " + table)
				other.exec("delete from " + table)
			}
			other.exec("delete from posthorn.enqueued_jobs")
			for _, sql := range someWork {
				other.exec(sql)
			}
			old := s.callers(chosen).plan()
			for _, sql := range rush {
				other.exec(sql, plenty)
			}
			other.exec(moreJobs)
			old.readFew("after the next rush")
		},
	}
	chosen := chooseCalls(len(states))
	for i, name := range slices.Sorted(maps.Keys(states)) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			states[name](database(t), chosen[i])
		})
	}
}

// An action on many jobs is made in parts. Each part goes on where the one before has
// ended, and does not read the jobs before and behind it.
func TestPartsOfActionsReadFewRows(t *testing.T) {
	t.Parallel()
	const jobs, part = 5000, 200
	for name, c := range map[string]struct{ action, status, prepare string }{
		"pending": {"cancel", "PENDING", "select 1"},
		"later":   {"delete", "PENDING", "select count(posthorn.change_job(id, run_at => now() + interval '1 month')) from posthorn.enqueued_jobs"},
		"failed":  {"retry", "FAILED", `select count(posthorn.fail_job(j.id, 'w', permanent => true)) from generate_series(0, 4) i, posthorn.claim_jobs('default', 'w', '{}', 1000 + 0 * i) j`},
		"running": {"retry", "PROCESSING", "select count(*) from generate_series(0, 4) i, posthorn.claim_jobs('default', 'w', '{}', 1000 + 0 * i) j"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			for _, table := range column[string](s, tables) {
				s.exec("alter table " + table + " set (autovacuum_enabled = off)")
			}
			s.exec("select count(posthorn.enqueue('default', 'x')) from generate_series(1, $1)", jobs)
			s.exec(c.prepare)
			total := value[int](s, "select posthorn.count_jobs('default', $1)::int", c.status)
			if total < jobs/2 {
				t.Fatalf("%d jobs are %s", total, c.status)
			}
			var after, least, most int64
			for n := 0; n < total; {
				s.exec("begin")
				before := value[int64](s, totalRead)
				var changed int
				row := s.conn.QueryRow(t.Context(), "select next, jobs from posthorn.steer_jobs('default', $1, $2, after => $3, max_jobs => $4)", c.action, c.status, after, part)
				if err := row.Scan(&after, &changed); err != nil || changed == 0 {
					t.Fatalf("%d jobs were changed, %v", changed, err)
				}
				read := value[int64](s, totalRead) - before
				s.exec("commit")
				if n += changed; changed == part {
					least, most = min(cmp.Or(least, read), read), max(most, read)
				}
			}
			if most > 2*least || most > 20*part {
				t.Errorf("a part of %d jobs reads from %d to %d rows", part, least, most)
			}
		})
	}
}
