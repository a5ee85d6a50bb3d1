package guarantee

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// plenty is the number of unrelated rows of each kind.
const plenty = 4000

// rush inserts rows into tables that are nearly empty at times.
var rush = []string{
	`insert into posthorn.leases (group_id, namespace_id, token, node, until, base, target, lo, hi, since)
		select g.id, g.namespace_id, gen_random_uuid(), 'other', now() + interval '1 hour', '1:1:', '1:1:', 0, 0, '-infinity'
		from posthorn.groups g, generate_series(1, $1) where g.name in ('plain', 'wanted')`,
	`insert into posthorn.leases (group_id, namespace_id, ids, slot)
		select g.id, g.namespace_id, array_fill(0, array[1000]), i from posthorn.groups g, generate_series(0, $1 / 250 - 1) i where g.ordering = 'key'`,
	`insert into posthorn.retries (group_id, event_id, attempts, due_at)
		select g.id, -i, 1, now() + interval '1 hour' from posthorn.groups g, generate_series(1, $1) i where g.name in ('plain', 'wanted', 'reader')`,
	`insert into posthorn.retries (group_id, event_id, attempts, due_at, slot)
		select g.id, -i, 1, now() + interval '1 hour', i % 16 from posthorn.groups g, generate_series(1, $1) i where g.ordering = 'key'`,
	`insert into posthorn.dead_letters (namespace_id, group_id, event_id, stream_id, type, tags, payload, metadata, published_at, attempts, reason)
		select g.namespace_id, g.id, -i, 0, 'e', '{}', '{}', '{}', now(), 1, 'test'
		from posthorn.groups g, generate_series(1, $1) i where g.name = 'plain'`,
	`insert into posthorn.delayed (id, namespace_id, stream_id, type, tags, payload, metadata, deliver_at)
		select -i, n.id, 0, 'e', '{}', '{}', '{}', now() + interval '1 hour' from posthorn.namespaces n, generate_series(1, $1) i where n.namespace = 'default'`,
	`insert into posthorn.dedup_keys (namespace_id, dedup_key, stream_id, event_id, expires_at)
		select n.id, 'key-' || i, 0, -i, now() + interval '1 hour' from posthorn.namespaces n, generate_series(1, $1) i where n.namespace = 'default'`,
	`insert into posthorn.running_jobs (job, picked_at, picked_log, seen_at, lease_until, lease_for, namespace_id, month, attempt, worker)
		select -i, now(), -i, now(), now() + interval '1 hour', '1 hour', n.id, now(), 1, 'w' from posthorn.namespaces n, generate_series(1, $1) i where n.namespace = 'default'`,
	`insert into posthorn.retried_jobs (job, attempt, updated_at) select -i, 1, now() from generate_series(1, $1) i`,
	`insert into posthorn.relayed (group_id, stream_id, first_id, last_id, at, epoch)
		select g.id, -i, -i, -i, now(), 1 from posthorn.groups g, generate_series(1, $1) i where g.name = 'out'`,
	`insert into posthorn.ready_jobs (namespace_id, rank, due_at, job, month, attempt, plain, tag)
		select n.id, 0, now(), -i, now(), 0, true, 't' from posthorn.namespaces n, generate_series(1, $1) i where n.namespace = 'other'`,
	`insert into posthorn.waiting_jobs (due_at, job, namespace_id, month)
		select now() + interval '1 hour', -i, n.id, now() from posthorn.namespaces n, generate_series(1, $1) i where n.namespace = 'default'`,
	`insert into posthorn.parked_jobs (namespace_id, rank, due_at, job, month, tag)
		select n.id, 0, now(), -i, now(), 'held' from posthorn.namespaces n, generate_series(1, $1) i where n.namespace = 'default'`,
	`insert into posthorn.job_keys (namespace_id, unique_key, job) select n.id, 'key-' || i, -i from posthorn.namespaces n, generate_series(1, $1) i where n.namespace = 'default'`,
	`insert into posthorn.running_tags (namespace_id, tag, job) select n.id, 'held', -i from posthorn.namespaces n, generate_series(1, $1) i where n.namespace = 'default'`,
	`insert into posthorn.job_openings (namespace_id, tag, at) select n.id, 'held', now() + interval '1 hour' from posthorn.namespaces n, generate_series(1, $1) i where n.namespace = 'default'`,
}

// obstacles insert rows that are unrelated to a call, or not due yet.
var obstacles = append(slices.Clone(rush),
	`insert into posthorn.retries (group_id, event_id, subscription, attempts, due_at)
		select g.id, -i, 'slow', 0, now() - interval '1 hour' from posthorn.groups g, generate_series(1, $1) i where g.name = 'webhooks'`,
	`insert into posthorn.retries (group_id, event_id, subscription, attempts, due_at, slot)
		select w.group_id, -i, w.name, 0, now() - interval '1 hour', posthorn.webhook_slot(w.id, 7) from posthorn.webhooks w, generate_series(1, $1) i where w.ordering = 'key'`,
	`insert into posthorn.dead_letters (namespace_id, group_id, subscription, event_id, stream_id, type, tags, payload, metadata, published_at, attempts, reason)
		select g.namespace_id, g.id, 'gone', -i, 0, 'e', '{}', '{}', '{}', now(), 1, 'test' from posthorn.groups g, generate_series(1, $1) i where g.name = 'webhooks'`,
	`insert into posthorn.api_tokens (name, hash, prefix, scopes) select 't' || i, sha256(i::text::bytea), 'p' || i, '{}' from generate_series(1, $1) i`,
	`select count(posthorn.schedule('default', 's' || i, '@yearly', 'e')) from generate_series(1, $1 / 4) i`,
	`select count(posthorn.publish('other', 'e', key => 'k' || i)) from generate_series(1, $1) i`,
	`select count(posthorn.enqueue('other', 'x', tags => '{t}')) from generate_series(1, $1) i`,
	`select count(posthorn.enqueue('default', 'x', tags => '{slow}', run_at => now() + interval '1 hour')) from generate_series(1, $1) i`,
	`select count(posthorn.subscribe('default', 'wanted', 's' || i, jsonb_build_object('key', jsonb_build_array('none-' || i)))) from generate_series(1, $1 / 4) i`,
)

// everyday are the calls that programs make all the time. Each does its work on a few
// rows.
var everyday = []struct{ name, sql string }{
	{"take", "select count(*) from posthorn.take($plain, 'w', 10, '1 minute', '$token')"},
	{"lease_events", "select count(*) from posthorn.lease_events('$token')"},
	{"take and settle", `select count(*) from posthorn.leases l,
		posthorn.take($plain, 'w', 10, '1 minute', gen_random_uuid(), l.id, l.attempt) where l.token = '$token'`},
	{"claim", "select count(*) from posthorn.claim('default', 'plain', 'w', 10)"},
	{"claim in order", "select count(*) from posthorn.claim('default', 'keyed', 'w', 10)"},
	{"claim by subscription", "select count(*) from posthorn.claim('default', 'wanted', 'w', 10)"},
	{"extend", "select count(posthorn.extend(l.id, l.attempt, '1 minute')) from posthorn.leases l where l.token = '$token'"},
	{"settle until", "select count(posthorn.settle_until(l.id, l.attempt, l.lo, '1 minute')) from posthorn.leases l where l.token = '$token'"},
	{"release", "select count(posthorn.release(l.id, l.attempt)) from posthorn.leases l where l.token = '$token'"},
	{"settle", "select count(posthorn.settle(l.id, l.attempt)) from posthorn.leases l where l.token = '$token'"},
	{"settle with a failure", `select count(posthorn.settle(l.id, l.attempt, jsonb_build_array(jsonb_build_object('event', l.hi))))
		from posthorn.leases l where l.token = '$token'`},
	{"publish", "select posthorn.publish('default', 'e', dedup_key => 'key-fresh')"},
	{"publish with a delay", "select posthorn.publish('default', 'e', deliver_at => now() + interval '1 hour')"},
	{"deliver_delayed", "select posthorn.deliver_delayed()"},
	{"enqueue", "select posthorn.enqueue('default', 'x', tags => '{t}')"},
	{"enqueue with a key", "select posthorn.enqueue('default', 'x', tags => '{t}', unique_key => 'fresh')"},
	{"enqueue and claim with a key", `select count(*) from posthorn.enqueue('default', 'x', tags => '{alone}', unique_key => 'fresh') e, posthorn.claim_jobs('default', 'w' || e, '{alone}', 10)`},
	{"claim_jobs within limits", "select count(*) from posthorn.claim_jobs('default', 'w', '{limited}', 10)"},
	{"claim_jobs", "select count(*) from posthorn.claim_jobs('default', 'w', '{t}', 10)"},
	{"complete_job", `select count(posthorn.complete_job(j.id, 'w', attempt => j.attempt)) from posthorn.claim_jobs('default', 'w', '{t}', 10) j`},
	{"fail_job", `select count(posthorn.fail_job(j.id, 'w', 'broken', attempt => j.attempt)) from posthorn.claim_jobs('default', 'w', '{t}', 10) j`},
	{"heartbeat_job", `select count(posthorn.heartbeat_job(j.id, 'w', j.attempt)) from posthorn.claim_jobs('default', 'w', '{t}', 10) j`},
	{"register_node", "select posthorn.register_node('default', 'n')"},
	{"touch_node_heartbeat", "select posthorn.touch_node_heartbeat('n')"},
	{"find_token", "select count(*) from posthorn.find_token(sha256('7'))"},
	{"read_next_events", "select count(*) from posthorn.read_next_events('reader', chunk_size => 10)"},
	{"read_events", "select count(*) from posthorn.read_events('default', posthorn.cursor_after('default', $first), 10)"},
	{"read_log", "select count(*) from posthorn.read_log('default', posthorn.cursor_after('default', $first), 10)"},
	{"await_news", "select posthorn.await_news(pg_current_snapshot(), pg_current_snapshot(), 0, '0')"},
	{"list dead letters", `select count(*) from posthorn.brief_dead_letters('default', null, '{"limit": 10}')`},
	{"list dead letters of a group", `select count(*) from posthorn.brief_dead_letters('default', 'keyed', '{"limit": 10}')`},
	{"list jobs", "select count(*) from posthorn.browse_jobs('default', max_jobs => 10) b, posthorn.get_jobs('default', array[b.job])"},
	{"keep_subscriptions", "select posthorn.keep_subscriptions($wanted)"},
	{"group_handlers", "select count(*) from posthorn.group_handlers('default', 'plain')"},
	{"heartbeat_jobs", `select count(*) from posthorn.claim_jobs('default', 'w', '{t}', 10) j, posthorn.heartbeat_jobs('w', array[j.id], array[j.attempt], '1 minute')`},
	{"held_jobs", `select count(*) from (select array_agg(id) ids, array_agg(attempt) attempts from posthorn.claim_jobs('default', 'w', '{t}', 10)) j, posthorn.held_jobs('w', j.ids, j.attempts)`},
	{"complete_jobs", `select count(*) from (select array_agg(id) ids, array_agg(attempt) attempts from posthorn.claim_jobs('default', 'w', '{t}', 10)) j, posthorn.complete_jobs('w', j.ids, j.attempts)`},
	{"release_jobs", `select count(*) from (select array_agg(id) ids, array_agg(attempt) attempts from posthorn.claim_jobs('default', 'w', '{t}', 10)) j, posthorn.release_jobs('w', j.ids, j.attempts)`},
	{"lead_relay", "select count(*) from posthorn.lead_relay($out, 'supervisor-h-1-0123abcd', '1 minute')"},
	{"take_relay and settle_relay", `select count(posthorn.settle_relay($out, 'supervisor-h-1-0123abcd', r.term, t.lease, t.attempt))
		from posthorn.lead_relay($out, 'supervisor-h-1-0123abcd', '1 minute') r, posthorn.take_relay($out, 'supervisor-h-1-0123abcd', r.term, 10, '1 minute', '$token') t`},
	{"lead_webhooks", "select count(*) from posthorn.lead_webhooks($webhooks, 'sender-h-1-0123abcd', '1 minute')"},
	{"webhook_endpoints", `select count(*) from posthorn.webhook_groups g, posthorn.webhook_endpoints(g.group_id, g.owner, g.epoch)`},
	{"look_at_webhooks", `select count(*) from posthorn.webhook_groups g, posthorn.look_at_webhooks(g.group_id, g.owner, g.epoch)`},
	{"due_webhooks", `select count(*) from posthorn.webhook_groups g, posthorn.due_webhooks(g.group_id, g.owner, g.epoch,
		array(select id from posthorn.webhooks), '{5, 5, 5}', '{}', '{}')`},
	{"webhook_status", "select sum(dead_letters) from posthorn.webhook_status where name = 'quick'"},
	{"take_webhooks and record_webhooks", `select count(*) from posthorn.webhook_groups g,
		posthorn.take_webhooks(g.group_id, g.owner, g.epoch, 10, '1 minute') t,
		posthorn.record_webhooks(g.group_id, g.owner, g.epoch, jsonb_build_object('windows', jsonb_build_array(jsonb_build_array(t.lease, t.attempt)),
			'results', jsonb_build_array(jsonb_build_object('webhook', 1, 'event', $first, 'outcome', 'delivered', 'attempts', 1, 'request_id', 'r', 'status', 200, 'duration_ms', 5))))`},
	{"tend", "select posthorn.tend()"},
	{"fire_schedules", "select posthorn.fire_schedules()"},
}

const tables = "select c.oid::regclass::text from pg_class c where c.relnamespace = 'posthorn'::regnamespace and c.relkind = 'r'"

// crowd returns a session in a database with groups of every kind, and work for each.
func crowd(t *testing.T) *session {
	s := database(t)
	s.exec("select posthorn.define_namespace('other')")
	s.exec("select posthorn.define_group('default', 'plain')")
	s.exec(`select posthorn.define_group('default', 'keyed', '{"order": "key", "on_failure": "block"}')`)
	s.exec("select posthorn.define_group('default', 'wanted')")
	s.exec("select posthorn.subscribe('default', 'wanted', 'w', '{}')")
	s.exec("select posthorn.define_group('default', 'reader')")
	s.exec("select posthorn.define_relay('default', 'out')")
	for _, name := range []string{"quick", "slow", "keyed"} {
		order := map[bool]string{true: "key", false: "none"}[name == "keyed"]
		s.exec("select posthorn.create_webhook('default', $1, jsonb_build_object('url', 'https://example.com', 'order', $2::text))", name, order)
	}
	s.exec("select posthorn.set_job_limit('default', 'limited', max_running => 5)")
	s.exec("select posthorn.publish('default', 'e')")
	for _, table := range column[string](s, tables) {
		s.exec("alter table " + table + " set (autovacuum_enabled = off)")
	}
	return s
}

const someJobs = "select posthorn.enqueue('default', 'x', tags => array[t]) from generate_series(1, 5) i, unnest('{t,limited}'::text[]) t"

// crowdIn inserts the obstacles, and work before and after them.
func (s *session) crowdIn() {
	s.t.Helper()
	s.exec("select posthorn.publish('default', 'e', key => 'k' || i) from generate_series(1, 50) i")
	s.exec(someJobs)
	for _, sql := range obstacles {
		s.exec(sql, plenty)
	}
	s.exec("select posthorn.publish('default', 'e', key => 'k' || i) from generate_series(1, 50) i")
	s.exec(someJobs)
}

const token = "8c1fcb0e-0000-4000-8000-000000000001"

// totalRead is the number of rows and index entries that the transaction has read.
const totalRead = `select sum(pg_stat_get_xact_tuples_returned(c.oid))::bigint from pg_class c where c.relnamespace = 'posthorn'::regnamespace`

// rowsRead makes all everyday calls, and returns the number of rows and index entries
// that each has read.
func (s *session) rowsRead() map[string]int64 {
	s.t.Helper()
	words := strings.NewReplacer("$token", token,
		"$plain", s.group("plain"), "$out", s.group("out"), "$wanted", s.group("wanted"), "$webhooks", s.group("webhooks"), "$first", fmt.Sprint(value[int64](s, "select min(id) from posthorn.events")))
	counts := make(map[string]int64)
	for _, call := range everyday {
		// A look for expired jobs reads all that run. Calls seldom make it, and here they do not.
		s.exec("select setval('posthorn.expire_jobs_from', (extract(epoch from now() + interval '5 seconds') * 1000)::bigint)")
		s.exec("begin")
		if strings.Contains(call.sql, "l.token") || call.name == "lease_events" {
			s.exec(words.Replace(everyday[0].sql))
		}
		before := value[int64](s, totalRead)
		s.exec(words.Replace(call.sql))
		counts[call.name] = value[int64](s, totalRead) - before
		s.exec("rollback")
	}
	return counts
}

func (s *session) group(name string) string {
	return fmt.Sprint(value[int32](s, "select id from posthorn.groups where name = $1", name))
}

func (s *session) readsFew(when string) {
	s.t.Helper()
	const few = 800
	for call, rows := range s.rowsRead() {
		if rows > few {
			s.t.Errorf("%s: %s looks at %d rows", when, call, rows)
		}
	}
}

// A session makes a plan once and keeps it. So each plan must be good whatever the
// tables contained when it was made: nothing, many rows, or only dead rows.
func TestCallsReadFewRows(t *testing.T) {
	t.Parallel()
	for name, check := range map[string]func(s *session){
		"plans of now": func(s *session) {
			s.crowdIn()
			s.readsFew("without statistics")
			s.exec("analyze")
			s.another().readsFew("with statistics")
		},
		"plans of when all was new": func(s *session) {
			s.rowsRead()
			s.another().crowdIn()
			s.readsFew("later")
		},
		"plans of after a rush": func(s *session) {
			const crowded = tables + ` and c.relname in ('leases', 'retries', 'dead_letters', 'delayed', 'dedup_keys', 'relayed',
				'ready_jobs', 'waiting_jobs', 'parked_jobs', 'running_jobs', 'retried_jobs', 'job_keys', 'running_tags')`
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
			s.rowsRead()
			for _, sql := range rush {
				other.exec(sql, plenty)
			}
			other.exec(someJobs)
			s.readsFew("after the next")
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			check(crowd(t))
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
		"later":   {"delete", "PENDING", "select count(posthorn.change_job(id, run_at => now() + interval '1 hour')) from posthorn.enqueued_jobs"},
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
