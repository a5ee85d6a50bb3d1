package guarantee

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// inhabit gives a namespace a row in each table that has rows of namespaces.
func (s *session) inhabit(namespace string) {
	s.t.Helper()
	const group, webhooks = "(select id from posthorn.groups where name = 'g' and namespace_id = NSID)", "(select id from posthorn.groups where kind = 'webhooks' and namespace_id = NSID)"
	const importID, archive = "(select id from posthorn.imports where namespace_id = NSID)", "(select id from posthorn.archives where namespace_id = NSID)"
	for _, sql := range []string{
		"select posthorn.define_namespace('NS')",
		"select posthorn.define_group('NS', 'g', '{\"start\": \"beginning\"}')",
		"select posthorn.define_group('NS', 'ordered', '{\"start\": \"beginning\", \"order\": \"key\"}')",
		"select posthorn.subscribe('NS', 'ordered', 'all', '{\"key\": [\"a\", \"b\"]}')",
		`select posthorn.define_group('NS', 'fussy', '{"start": "beginning"}')`,
		`select posthorn.subscribe('NS', 'fussy', 'f', '{"conditions_sql": "e.key is not null"}')`,
		"select posthorn.define_projection('NS', 'view')",
		"select posthorn.begin_replacement('NS', 'view')",
		"select posthorn.define_relay('NS', 'out')",
		"select posthorn.define_import('NS', 'in', 'broker', 'redis')",
		`select posthorn.define_archive('NS', 'cold', 'file:///NS', '{"segment_age": "0"}')`,
		`select posthorn.create_webhook('NS', 'hook', '{"url": "https://example.com"}')`,
		"select posthorn.schedule('NS', 'tick', '* * * * *', 'tick')",
		"select posthorn.set_stream_policy('NS', 'secret', 'confidential')",
		`select posthorn.add_stream_key('NS', 'secret', 1, '', '\x01')`,
		"select posthorn.publish('NS', 'e', key => 'a', dedup_key => 'k' || i) from generate_series(1, 30) i",
		"select posthorn.publish('NS', 'e', stream => 's' || i % 3, key => 'b') from generate_series(1, 30) i",
		"select posthorn.publish('NS', 'later', deliver_at => now() + interval '1 year') from generate_series(1, 3) i",
		"select posthorn.create_token('t NS', sha256('NS'), 'p', '{admin}', 'NS')",
		"select posthorn.register_node('NS', 'node-NS')",
		"insert into posthorn.node_handlers (node_id, group_id, handler, patterns) values ('node-NS', " + group + ", 'h', '{e}')",
		// An attempt that fails, one that fails for good, and a lease.
		`select posthorn.settle(c.lease, c.attempt, jsonb_build_array(jsonb_build_object('event', c.event_id, 'permanent', true))) from posthorn.claim('NS', 'g', 'w', 1) c`,
		`select posthorn.settle(c.lease, c.attempt, jsonb_build_array(jsonb_build_object('event', c.event_id))) from posthorn.claim('NS', 'g', 'w', 1) c`,
		`select posthorn.settle(c.lease, c.attempt, jsonb_build_array(jsonb_build_object('event', c.event_id))) from posthorn.claim('NS', 'ordered', 'w', 1) c`,
		"select posthorn.claim('NS', 'g', 'w', 1)",
		"insert into posthorn.readers (group_no, token) values (" + group + ", gen_random_uuid())",
		"insert into posthorn.former_names (group_no, former, name) values (" + group + ", 'was', 'is')",
		"insert into posthorn.stops (subscription_id, group_no) select id, group_no from posthorn.subscriptions where namespace = 'NS' and name = 'f'",
		"insert into posthorn.missed (subscription_id, event_id) select id, 1 from posthorn.subscriptions where namespace = 'NS' and name = 'f'",
		"insert into posthorn.failures (namespace_id, group_id, n) values (NSID, " + group + ", 1)",
		// Jobs in each state.
		"select posthorn.set_job_limit('NS', 'held', max_running => 1)",
		"select posthorn.set_job_limit('NS', 'often', max_started => 1, period => '1 hour')",
		"select posthorn.enqueue('NS', 'x', tags => array[t], unique_key => t) from unnest('{fails,runs,breaks,done,held,often,waits}'::text[]) t",
		"select posthorn.enqueue('NS', 'x', tags => array[t]) from unnest('{held,often}'::text[]) t, generate_series(1, 3)",
		"select posthorn.enqueue('NS', 'x', tags => '{fair}', fair_key => 'f' || i) from generate_series(1, 4) i",
		"select posthorn.fail_job(j.id, 'w', 'broken', permanent => true) from posthorn.claim_jobs('NS', 'w', '{fails}', 1) j",
		"select posthorn.fail_job(j.id, 'w', 'broken') from posthorn.claim_jobs('NS', 'w', '{breaks}', 1) j",
		"select posthorn.complete_job(j.id, 'w') from posthorn.claim_jobs('NS', 'w', '{done}', 1) j",
		"select posthorn.claim_jobs('NS', 'w', array[t], 1, '1 day') from unnest('{runs,held,often,fair}'::text[]) t",
		"select posthorn.claim_jobs('NS', 'w', array[t], 1, '1 day') from unnest('{held,often}'::text[]) t", // parks the others
		"select posthorn.await_event(j.id, 'w', 'step', 'paid', 'k', '1 day') from posthorn.claim_jobs('NS', 'w', '{waits}', 1) j",
		"insert into posthorn.awaited_events (job, name, event) select job, name, 1 from posthorn.job_awaits where namespace_id = NSID",
		"select posthorn.enqueue('NS', 'x', tags => '{later}', unique_key => 'later', run_at => now() + interval '1 year')",
		"select posthorn.enqueue('NS', 'x', tags => '{blocked}', after => array(select id from posthorn.enqueued_jobs where namespace_id = NSID and tags && '{fails,runs}'))",
		"insert into posthorn.job_openings (namespace_id, tag, at) values (NSID, 'held', now() + interval '1 year')",
		"insert into posthorn.job_hints (namespace_id, tag, rank, turn, job, dead, until) values (NSID, 'held', 0, now(), 0, 0, now())",
		"insert into posthorn.job_samples select NSID, now(), '', 1, 1, 1, 1, '{}', '{}'",
		"insert into posthorn.samples select NSID, now(), 1, 1, 1, 1, 1, '{}', '{}', '{}', '{}'",
		// What the processes write.
		"insert into posthorn.relayed (group_id, stream_id, first_id, last_id, at, epoch) select id, 1, 1, 1, now(), 1 from posthorn.groups where kind = 'relay' and namespace_id = NSID",
		"insert into posthorn.lost_looks (next_id, group_id, entries) select 1, id, 1 from posthorn.groups where kind = 'relay' and namespace_id = NSID",
		"insert into posthorn.lost_events (id, namespace_id, next_id, stream, type, tags, payload, metadata, published_at, found_by) select -NSID, NSID, 1, 's', 'e', '{}', '{}', '{}', now(), 'out'",
		"insert into posthorn.import_streams (import_id, stream) values (" + importID + ", 's')",
		"insert into posthorn.imported_ids (import_id, stream, imported, low, high, ids, prints) values (" + importID + ", 's', 1, 1, 1, '{1}', '{1}')",
		"insert into posthorn.import_dead_letters (import_id, stream, event_id, print, log, log_namespace, type, tags, payload, metadata, published_at, reason) values (" + importID + ", 's', 1, 1, gen_random_uuid(), 'n', 'e', '{}', '{}', '{}', now(), 'r')",
		"insert into posthorn.archive_streams (archive_id, stream_id) values (" + archive + ", 1)",
		"insert into posthorn.archive_parts (archive_id, stream_id, day, ids, bytes) values (" + archive + ", 1, now(), '{1}', 1)",
		"insert into posthorn.archive_segments (archive_id, stream_id, first_id, last_id, day, events, bytes) values (" + archive + ", 1, 1, 1, now(), 1, 1)",
		"insert into posthorn.archive_days (archive_id, stream_id, day, first_id, last_id) values (" + archive + ", 1, now(), 1, 1)",
		"select posthorn.begin_replay('NS', 'replay', 't')",
		"insert into posthorn.webhook_attempts (event_id, webhook_id, attempt, duration_ms, outcome, request_id) select 1, id, 1, 1, 'delivered', 'r' from posthorn.webhooks where group_id = " + webhooks,
		"select posthorn.record_action('NS', 'somebody', 'pause-group', 'g', '{}', 1)",
		"select posthorn.publish_to('NS', 'ordered', 'all', 'm') from generate_series(1, 5)", // kept under the negative id of the group
		"select posthorn.test_webhook('NS', 'hook')",
		"select posthorn.merge_streams()",
		"insert into public.places select 'NS', 1",
	} {
		id := value[int](s, "select coalesce((select id from posthorn.namespaces where namespace = $1), 0)", namespace)
		s.exec(strings.NewReplacer("NSID", fmt.Sprint(id), "NS", namespace).Replace(sql))
	}
}

// ofNamespace says which rows of a table x are of the namespaces with some ids, by the columns that the
// table has. The first column that it has counts.
var ofNamespace = []struct{ column, rows string }{
	{"namespace_id", "x.namespace_id = any ($1)"},
	{"import_id", "x.import_id in (select id from posthorn.imports where namespace_id = any ($1))"},
	{"archive_id", "x.archive_id in (select id from posthorn.archives where namespace_id = any ($1))"},
	{"webhook_id", "x.webhook_id in (select w.id from posthorn.webhooks w join posthorn.groups g on g.id = w.group_id where g.namespace_id = any ($1))"},
	{"subscription_id", "x.subscription_id in (select u.id from posthorn.subscriptions u join posthorn.groups g on g.id = u.group_no where g.namespace_id = any ($1))"},
	{"group_id", "x.group_id::text in (select id::text from posthorn.groups where namespace_id = any ($1))"},
	{"group_no", "x.group_no in (select id from posthorn.groups where namespace_id = any ($1))"},
	{"namespace", "x.namespace in (select namespace from posthorn.namespaces where id = any ($1))"},
	{"job", "x.job in (select id from posthorn.enqueued_jobs where namespace_id = any ($1))"},
	{"node_id", "x.node_id in (select d.node_id from posthorn.nodes d join posthorn.namespaces n on n.namespace = d.namespace where n.id = any ($1))"},
}

// ofNamespaceBy says it of tables whose columns have other meanings.
var ofNamespaceBy = map[string]string{
	"namespaces":      "x.id = any ($1)",
	"events":          "x.namespace_id = any ($1) or -x.namespace_id in (select id from posthorn.groups where namespace_id = any ($1))",
	"subscriptions":   "x.namespace in (select namespace from posthorn.namespaces where id = any ($1))",
	"job_log_entries": "x.event_id in (select id from posthorn.enqueued_jobs where namespace_id = any ($1))",
	"sealed_streams":  "x.stream_id in (select id from posthorn.stream_names where namespace_id = any ($1))",
	"leads":           "case x.kind when 'import' then x.id in (select id from posthorn.imports where namespace_id = any ($1)) else x.id in (select id from posthorn.groups where namespace_id = any ($1)) end",
}

// ofNoNamespace are the tables whose rows are of the whole database.
var ofNoNamespace = strings.Fields(`config cluster log_origin this_life moves ticks conditions condition_functions await_places job_endings
	job_sample_places job_sample_gaps pg_cron archive_restores migrations schema_version`)

// rowsOf counts the rows of some namespaces in each table; of each table that a new migration makes
// ofNamespace must know what they are.
func (s *session) rowsOf(namespaces []int32) (counts map[string]int) {
	s.t.Helper()
	counts = map[string]int{}
	for _, table := range column[string](s, `select c.relname::text from pg_class c
		where c.relnamespace = 'posthorn'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition order by 1`) {
		if slices.Contains(ofNoNamespace, table) {
			continue
		}
		rows := ofNamespaceBy[table]
		columns := column[string](s, "select attname::text from pg_attribute where attrelid = ('posthorn.' || $1)::regclass and attnum > 0 and not attisdropped", table)
		for _, of := range ofNamespace {
			if rows == "" && slices.Contains(columns, of.column) {
				rows = of.rows
			}
		}
		if rows == "" {
			s.t.Fatalf("the test does not know which rows of %s are of a namespace", table)
		}
		counts[table] = value[int](s, "select count(*) from posthorn."+table+" x where "+rows, namespaces)
	}
	return counts
}

// allRows counts the rows of each table that rowsOf counts.
func (s *session) allRows() map[string]int {
	s.t.Helper()
	all := s.rowsOf(nil)
	for table := range all {
		all[table] = value[int](s, "select count(*) from posthorn."+table)
	}
	return all
}

func (s *session) namespaceID(name string) int32 {
	s.t.Helper()
	return value[int32](s, "select id from posthorn.namespaces where namespace = $1", name)
}

// deleteAll deletes a namespace, a few rows at a time, each time in a session of its own.
func (s *session) deleteAll(namespace string, rows int) (calls int) {
	s.t.Helper()
	for done := false; !done; calls++ {
		done = value[bool](s, "select done from posthorn.delete_namespace($1, $2)", namespace, rows)
		if calls > 5000 {
			s.t.Fatal("the deletion does not end")
		}
	}
	return calls
}

// threeTenants makes the namespaces shop and neighbour, and fills them and default.
func (s *session) threeTenants() {
	s.t.Helper()
	s.exec("create table public.places (name text, n int)")
	s.exec("insert into posthorn.moves (next_id, reason, last_id, timeline) values (1, 'crash', 0, 1)") // which lost_events name
	for _, namespace := range []string{"shop", "neighbour", "default"} {
		s.inhabit(namespace)
	}
	s.exec("truncate posthorn.job_endings")
}

// All rows of a namespace that is deleted go, in whichever parts, and no others.
func TestDeletedNamespaceLeavesNoRow(t *testing.T) {
	t.Parallel()
	for _, rows := range []int{3, 10000} {
		t.Run(fmt.Sprint(rows), func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.threeTenants()
			shop := []int32{s.namespaceID("shop")}
			others := []int32{s.namespaceID("neighbour"), s.namespaceID("default")}
			for table, n := range s.rowsOf(shop) {
				if n == 0 {
					t.Errorf("there is no row in %s, so it is not tested", table)
				}
			}
			s.exec(closeShop)
			s.exec(awaitShop)
			theirs, all, had := s.rowsOf(others), s.allRows(), s.rowsOf(shop)
			s.deleteAll("shop", rows)
			equal(t, "rows of the other namespaces", s.rowsOf(others), theirs)
			left := s.allRows()
			for table := range left {
				if want := all[table] - had[table]; left[table] != want {
					t.Errorf("%s has %d rows, and should have %d", table, left[table], want)
				}
			}
			s.refused("PH001", "select posthorn.delete_namespace('shop')")
			s.exec("select posthorn.define_namespace('shop')") // a new one
			s.exec("select posthorn.publish('shop', 'e')")
			equal(t, "events of the new one", value[int](s, "select count(*) from posthorn.read_events('shop', posthorn.cursor_at('-infinity')) where event_id is not null"), 1)
			s.exec("select posthorn.tend()")
		})
	}
}

// From the first part on everything that names the namespace is refused, and it stays so.
func TestNamespaceThatIsBeingDeletedIsRefused(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.tenant()
	s.refused("PH002", "select posthorn.delete_namespace('shop')") // open
	s.refused("PH005", "select posthorn.delete_namespace('default')")
	s.refused("PH001", "select posthorn.delete_namespace('nowhere')")
	writer := s.another()
	writer.exec("begin")
	writer.exec("select posthorn.publish('shop', 'e')")
	s.exec(closeShop)
	s.refused("PH002", "select posthorn.delete_namespace('shop')") // not quiet
	writer.exec("commit")
	s.exec(awaitShop)
	s.refused("PH004", "select posthorn.delete_namespace('shop', 0)")
	before := value[int](s, "select count(*) from posthorn.events")
	definer := s.another()
	definer.exec("begin")
	definer.exec("select posthorn.set_job_limit('shop', 't', 1)") // it is closed, and not deleted
	s.exec("begin")
	s.exec("select posthorn.delete_namespace('shop')")
	s.refused("PH005", "select posthorn.delete_namespace('shop')")
	s.exec("rollback")
	s.exec("select posthorn.delete_namespace('shop')")
	for _, sql := range []string{
		"select posthorn.publish('shop', 'e')", "select posthorn.enqueue('shop', 'j')", "select * from posthorn.claim('shop', 'g', 'w')",
		"select posthorn.define_group('shop', 'another')", "select posthorn.schedule('shop', 's', '@daily', 'e')", "select posthorn.set_job_limit('shop', 'u', 1)",
		"select posthorn.register_node('shop', 'n')", "select posthorn.create_token('t', sha256('x'), 'p', '{admin}', 'shop')",
		"select posthorn.open_namespace('shop')", "select posthorn.close_namespace('shop')", "select posthorn.define_namespace('shop')",
		"select posthorn.pause_group('shop', 'g')", "select posthorn.publish_to('shop', 'ordered', 'all', 'm')",
		"select posthorn.subscribe('shop', 'ordered', 'more')", "select posthorn.subscribe('shop', 'ordered', 'all', '{\"conditions_sql\": \"true\"}')",
		"select posthorn.set_stream_policy('shop', 's', 'restricted')", "select posthorn.record_action('shop', 'a', 'b', 'c', '{}', 1)",
		"select * from posthorn.read_events('shop', posthorn.cursor_at('-infinity'))",
	} {
		s.wantMoved(sql)
	}
	part := value[string](s, "select part from posthorn.delete_namespace('shop')")
	if !strings.HasPrefix(part, "transactions from before: process ") {
		t.Errorf("it does not wait for the transaction that has set a limit: %s", part)
	}
	equal(t, "events", value[int](s, "select count(*) from posthorn.events"), before)
	definer.exec("commit")
	s.deleteAll("shop", 10)
	equal(t, "limits", value[int](s, "select count(*) from posthorn.job_limits"), 0)
	s.exec("select posthorn.publish('default', 'e')")
}

// HTTP needs a token after the deletion of the namespaces that had all of them.
func TestDeletionLeavesTokensRequired(t *testing.T) {
	t.Parallel()
	s := database(t)
	for _, namespace := range []string{"shop", "neighbour"} {
		s.exec("select posthorn.define_namespace($1)", namespace)
		s.exec("select posthorn.create_token($1::text || i, sha256(($1::text || i)::bytea), 'p' || i, '{admin}', $1) from generate_series(1, 2) i", namespace)
		s.exec("select posthorn.close_namespace($1)", namespace)
		s.exec("select posthorn.await_closed($1)", namespace)
	}
	s.deleteAll("shop", 1000)
	equal(t, "tokens of the other namespace", value[int](s, "select count(*) from posthorn.list_tokens() where namespace = 'neighbour' and revoked_at is null"), 2)
	s.deleteAll("neighbour", 1000)
	equal(t, "required", value[bool](s, "select posthorn.tokens_required()"), true)
	equal(t, "good tokens", value[int](s, "select count(*) from posthorn.list_tokens() where revoked_at is null"), 0)
}

// The log stays append-only for all namespaces that are not deleted, also for the owner of the schema.
func TestDeletionOpensNothingElse(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.tenant()
	s.exec("select posthorn.publish('default', 'e')")
	s.exec("select posthorn.complete_job(j.id, 'w') from posthorn.claim_jobs('shop', 'w', '{t}') j")
	s.exec(closeShop)
	s.exec(awaitShop)
	s.refused("PH005", "delete from posthorn.events where type = 'e'")
	s.refused("PH005", "delete from posthorn.finished_jobs")
	s.exec("select posthorn.delete_namespace('shop')")
	s.exec("select posthorn.delete_namespace('shop')")
	s.refused("PH005", "delete from posthorn.events")
	s.refused("PH005", "delete from posthorn.events where namespace_id = 1")
	s.refused("PH005", "update posthorn.events set type = 'f' where namespace_id <> 1")
	s.refused("PH005", "truncate posthorn.events")
	for _, partition := range column[string](s, "select inhrelid::regclass::text from pg_inherits where inhparent = 'posthorn.events'::regclass and inhrelid::regclass::text not like '%default'") {
		if value[bool](s, "select exists (select from "+partition+")") {
			s.refused("PH005", "truncate "+partition)
		}
	}
}

// A partition with events of deleted namespaces alone is emptied at once, and not while somebody uses it: nobody waits.
func TestDeletionEmptiesPartitions(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.define_namespace('shop')")
	s.exec("select posthorn.publish('shop', 'e') from generate_series(1, 100)")
	s.exec("analyze posthorn.events")
	s.exec(closeShop)
	s.exec(awaitShop)
	s.exec("select posthorn.delete_namespace('shop')")
	s.exec("select posthorn.delete_namespace('shop')")
	reader := s.another()
	reader.exec("begin")
	reader.exec("select count(*) from posthorn.events")
	for value[string](s, "select part from posthorn.delete_namespace('shop', 10)") != "events" {
	}
	equal(t, "events, while somebody reads", value[int](s, "select count(*) from posthorn.events"), 90)
	reader.exec("commit")
	equal(t, "rows", value[int](s, "select deleted from posthorn.delete_namespace('shop', 10)"), 100)
	equal(t, "events", value[int](s, "select count(*) from posthorn.events"), 0)
	s.deleteAll("shop", 10)
}

// A deletion does not look again at partitions up to the last event that it has deleted: there are only dead rows left.
func TestDeletionReadsOldPartitionsOnce(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.define_namespace('shop')")
	s.exec("select posthorn.publish('shop', 'e') from generate_series(1, 100)")
	s.exec("analyze posthorn.events")
	s.exec(closeShop)
	s.exec(awaitShop)
	for range 2 { // it is refused, and quiet
		s.exec("select posthorn.delete_namespace('shop')")
	}
	const empty = "select posthorn.empty_partition(n) from posthorn.namespaces n where n.namespace = 'shop'"
	s.exec("update posthorn.namespaces set deleted_to = (select max(id) from posthorn.events) where namespace = 'shop'")
	equal(t, "rows up to the last event that is deleted", value[int](s, empty), 0)
	s.exec("update posthorn.namespaces set deleted_to = (select max(id) - 1 from posthorn.events) where namespace = 'shop'")
	equal(t, "rows where there is an event behind it", value[int](s, empty), 100)
}

// A deletion waits for the transactions that were open when a call began, and not for those that follow them: else it might never
// end. The call gives up after some seconds, and the next one begins anew.
func TestDeletionWaitsForNoLaterTransactions(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.define_namespace('shop')")
	s.exec(closeShop)
	s.exec(awaitShop)
	s.exec("select posthorn.delete_namespace('shop')")
	before := s.another()
	write := func(w *session) {
		w.exec("begin")
		w.exec("select posthorn.publish('default', 'e')")
	}
	write(before)
	var part string
	for range 5 { // a call may give up on a busy machine before the transaction that it waits for has ended
		deleter, later := s.another(), s.another()
		parts := make(chan string, 1)
		go func() {
			var part string
			if err := deleter.conn.QueryRow(t.Context(), "select part from posthorn.delete_namespace('shop')").Scan(&part); err != nil {
				part = err.Error()
			}
			parts <- part
		}()
		s.await("select exists (select from pg_stat_activity where pid = $1 and wait_event = 'PgSleep')", deleter.pid())
		write(later)
		before.exec("commit")
		part, before = await.Value(t, "the end of the call", parts), later
		if !strings.HasPrefix(part, "transactions from before: ") {
			break
		}
	}
	equal(t, "part", part, "namespaces")
	before.exec("rollback")
	s.deleteAll("shop", 10)
}

// Where a namespace has moved to it is opened when all others are closed for good, in one transaction. It takes publishes
// while they are deleted, and what was in default goes, too.
func TestKeptNamespaceIsTheOnlyOne(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.threeTenants()
	s.exec(closeShop)
	s.exec(awaitShop)
	shop := []int32{s.namespaceID("shop")}
	had := s.rowsOf(shop)
	s.promoted("0 seconds")
	s.exec("begin")
	equal(t, "to be deleted", column[string](s, "select posthorn.keep_namespace('shop')"), []string{"default", "neighbour"})
	watcher := s.another()
	watcher.exec("select posthorn.publish('neighbour', 'e')") // before the commit all are as they were
	watcher.wantMoved("select posthorn.publish('shop', 'e')")
	s.exec("commit")
	publish := "select posthorn.publish('shop', 'e', stream => 's0')"
	s.exec(publish)
	for _, sql := range []string{
		"select posthorn.publish('neighbour', 'e')", "select posthorn.publish('default', 'e', stream => 's0')", "select posthorn.enqueue('default', 'j')",
		"select * from posthorn.claim('default', 'g', 'w')", "select * from posthorn.claim_jobs('default', 'w', '{fair}')",
	} {
		hint := s.refused("PH008", sql).Hint
		if strings.Contains(sql, "'default'") != strings.Contains(hint, "opens by itself") {
			t.Errorf("the hint of %s is %q", sql, hint)
		}
	}
	s.turnClock(1e9 * 3600)
	s.exec("select posthorn.tend()")
	equal(t, "schedules that fired", column[string](s, "select distinct n.namespace from posthorn.events e join posthorn.namespaces n on n.id = e.namespace_id where e.type = 'tick'"), []string{"shop"})
	s.turnClock(0)
	late := value[int64](s, "select posthorn.publish('default', 'late')") // nothing refuses it
	equal(t, "to be deleted", column[string](s, "select posthorn.keep_namespace('shop')"), []string{"default", "neighbour"})
	s.deleteAll("default", 7) // first: actions of all namespaces are recorded in it
	equal(t, "to be deleted", column[string](s, "select posthorn.keep_namespace('shop')"), []string{"neighbour"})
	s.exec("select posthorn.record_action('default', 'a', 'b', 'c', '{}', 1)")
	s.exec("delete from posthorn.audit where namespace_id = 1")
	s.deleteAll("neighbour", 7)
	equal(t, "to be deleted", len(column[string](s, "select posthorn.keep_namespace('shop')")), 0)
	equal(t, "events of default", column[int64](s, "select id from posthorn.events where namespace_id = 1"), []int64{late})
	left, all := s.rowsOf(shop), s.allRows()
	rest := map[string]int{"namespaces": 1, "stream_names": 1, "events": 1}
	for _, table := range slices.Sorted(maps.Keys(all)) {
		if all[table] != left[table]+rest[table] {
			t.Errorf("%s has %d rows, of which %d are of shop", table, all[table], left[table])
		} else if left[table] < had[table]/2 && table != "failures" { // which upkeep counts
			t.Errorf("%s has %d rows of shop, and had %d", table, left[table], had[table])
		}
	}
	for _, sql := range []string{"select posthorn.publish('default', 'e')", "select posthorn.publish('default', 'e', stream => 's')", "select posthorn.define_group('default', 'g')", publish} {
		s.exec(sql)
	}
	equal(t, "claimed", value[int](s, "select count(*) from posthorn.claim('default', 'g', 'w')"), 0)
}

// promoted notes a move as the first session after a promotion does, by a clock that differs.
func (s *session) promoted(ahead string) {
	s.t.Helper()
	s.exec(`insert into posthorn.moves (next_id, reason, last_id, timeline, reused_xid, at)
		select nextval('posthorn.event_id'), 'promotion', 1, 2, pg_snapshot_xmax(pg_current_snapshot()), now() + $1::text::interval`, ahead)
}

// keep_namespace deletes nothing in the database in which a namespace was closed, and in a copy that may lack events.
func TestKeepIsRefused(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.define_namespace('shop')")
	s.exec("select posthorn.define_namespace('other')")
	keep := "select posthorn.keep_namespace('shop')"
	s.refused("PH001", "select posthorn.keep_namespace('nowhere')")
	s.refused("PH005", "select posthorn.keep_namespace('default')")
	s.refused("PH002", keep) // open
	s.promoted("1 hour")
	s.exec(closeShop)
	s.refused("PH002", keep) // not quiet
	s.exec(awaitShop)
	s.refused("PH002", keep) // promoted before the close, by a clock that was ahead
	s.exec("insert into posthorn.moves (next_id, reason, last_id, timeline) select nextval('posthorn.event_id'), 'crash', 1, 2")
	s.refused("PH002", keep) // a crash is no move
	equal(t, "namespaces that stay", value[int](s, "select count(*) from posthorn.namespaces where deleting_at is null"), 3)
	s.promoted("-1 hour") // whose clock is behind
	s.exec(keep)
}

// A deletion of another namespace is no sign that a namespace that is open has moved.
func TestKeepIsRefusedBesideAnotherDeletion(t *testing.T) {
	t.Parallel()
	s := database(t)
	for _, namespace := range []string{"shop", "stays", "goes"} {
		s.exec("select posthorn.define_namespace($1)", namespace)
	}
	s.exec("select posthorn.close_namespace('goes')")
	s.exec("select posthorn.await_closed('goes', '0')")
	s.exec("select posthorn.delete_namespace('goes')")
	s.refused("PH002", "select posthorn.keep_namespace('shop')")
}

// Messages for one subscription are in the log under their group: those of the namespace go, and those of others stay.
func TestDeletionKnowsMessagesForOneSubscription(t *testing.T) {
	t.Parallel()
	s := database(t)
	for _, namespace := range []string{"shop", "neighbour"} {
		s.exec("select posthorn.define_namespace($1)", namespace)
		s.exec("select posthorn.define_group($1, 'g')", namespace)
		s.exec("select posthorn.subscribe($1, 'g', 'all')", namespace)
		s.exec("select posthorn.publish_to($1, 'g', 'all', 'm') from generate_series(1, 10)", namespace)
	}
	s.exec("select posthorn.publish('shop', 'e') from generate_series(1, 10)")
	s.exec(closeShop)
	s.exec(awaitShop)
	s.refused("PH005", "delete from posthorn.events where namespace_id < 0")
	s.deleteAll("shop", 3)
	equal(t, "events", column[int64](s, "select e.namespace_id + g.id from posthorn.events e left join posthorn.groups g on g.name = 'g'"), make([]int64, 10))
	s.exec("select posthorn.close_namespace('neighbour')")
	s.exec("select posthorn.await_closed('neighbour', '0')")
	s.deleteAll("neighbour", 1000)
	equal(t, "events", value[int](s, "select count(*) from posthorn.events"), 0)
}

// doctor examines the other namespaces while one is deleted.
func TestDoctorDuringADeletion(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.threeTenants()
	s.exec(closeShop)
	s.exec(awaitShop)
	for range 4 {
		s.exec("select posthorn.delete_namespace('shop', 3)")
		equal(t, "checks that fail", value[string](s, `select coalesce(string_agg("check" || ': ' || found, ', '), '') from posthorn.doctor('1 minute') where found like 'could not be examined%'`), "")
	}
}

// A deletion takes its locks in the order of those that close, open and keep.
func TestDeletionWaitsBeforeItHasTheRow(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.define_namespace('shop')")
	s.exec(closeShop)
	s.exec(awaitShop)
	deleter := s.another()
	s.exec("begin")
	s.exec("select posthorn.lock_stream_names()")
	outcome := deleter.background("select posthorn.delete_namespace('shop')")
	s.awaitBlocked(deleter)
	s.exec("select from posthorn.namespaces where namespace = 'shop' for update nowait")
	s.exec("commit")
	if err := outcome(); err != nil {
		t.Error(err)
	}
}

// A crash during a deletion loses none of its parts that matter, and it goes on.
func deletionSurvivesACrash(t *testing.T, d *ownDatabase) {
	s := d.session()
	s.exec("set synchronous_commit = off")
	s.exec("select posthorn.define_namespace('shop')")
	s.exec("select posthorn.publish('shop', 'e', stream => 's' || i % 3) from generate_series(1, 100) i")
	s.exec("select posthorn.publish('default', 'e') from generate_series(1, 10)")
	s.exec(closeShop)
	s.exec(awaitShop)
	s.exec("select posthorn.delete_namespace('shop')")
	d.crash()
	s = d.session()
	s.wantMoved("select posthorn.open_namespace('shop')")
	for range 4 {
		s.exec("select posthorn.delete_namespace('shop', 10)")
	}
	d.crash()
	s = d.session()
	s.deleteAll("shop", 10)
	d.crash()
	s = d.session()
	s.refused("PH001", "select posthorn.publish('shop', 'e')")
	equal(t, "events", value[int](s, "select count(*) from posthorn.events"), 10)
}

// The way of a tenant: a standby has the close, is promoted, and keeps the namespace alone; the old primary deletes it.
func TestNamespaceMoves(t *testing.T) {
	t.Parallel()
	primary, w, _ := openOnPrimary(t)
	s := connect(t, w.Pool().Config().ConnString())
	s.threeTenants()
	standby := primary.Standby(t, "db2")
	s.exec(closeShop)
	s.exec(awaitShop)
	s.refused("PH002", "select posthorn.keep_namespace('shop')")
	last := value[int64](s, "select max(id) from posthorn.events")
	standby.AwaitReceived(t, primary)
	standby.Promote(t)
	there := connect(t, standby.URL())
	equal(t, "to be deleted", column[string](there, "select posthorn.keep_namespace('shop')"), []string{"default", "neighbour"})
	if id := value[int64](there, "select posthorn.publish('shop', 'e')"); id <= last {
		t.Errorf("event %d is published there after %d here", id, last)
	}
	other := testworld.OpenClient(t, posthorn.Config{DatabaseURL: standby.URL(), Namespace: "shop"}) // one process has clients of both sides
	for _, client := range []*posthorn.Client{other, w.Client, other} {
		if _, err := client.Publish(t.Context(), client.Pool(), posthorn.Message{Type: "e"}); err != nil {
			t.Error(err)
		}
	}
	there.deleteAll("neighbour", 100)
	there.deleteAll("default", 100)
	s.deleteAll("shop", 100)
	equal(t, "namespaces here", column[string](s, "select namespace from posthorn.namespaces order by 1"), []string{"default", "neighbour"})
	equal(t, "namespaces there", column[string](there, "select namespace from posthorn.namespaces order by 1"), []string{"default", "shop"})
}

// Rows that come while later parts are deleted, as those of a late result, go too.
func TestDeletionLooksAgain(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.tenant()
	for _, relay := range []string{"a", "b"} {
		s.exec("select posthorn.define_relay('shop', $1)", relay)
	}
	s.exec(closeShop)
	s.exec(awaitShop)
	for value[string](s, "select part from posthorn.delete_namespace('shop', 1)") != "groups" {
	}
	s.exec("insert into posthorn.lost_looks (next_id, group_id, entries) select 1, id, 1 from posthorn.groups where kind = 'relay'")
	s.exec("insert into posthorn.webhook_attempts (event_id, webhook_id, attempt, duration_ms, outcome, request_id) select 1, id, 1, 1, 'delivered', 'r' from posthorn.webhooks")
	late := "select (select count(*) from posthorn.lost_looks) + (select count(*) from posthorn.webhook_attempts)"
	if value[int](s, late) < 2 {
		t.Error("no result comes late")
	}
	for value[string](s, "select part from posthorn.delete_namespace('shop', 1)") != "events" {
	}
	equal(t, "results that came late", value[int](s, late), 0)
	shop := s.namespaceID("shop")
	s.exec("insert into posthorn.waiting_jobs (due_at, job, namespace_id, month) values (now(), -1, $1, now())", shop)
	s.exec("insert into posthorn.events (id, namespace_id, stream_id, type, payload) values (1, $1, 1, 'e', '{}')", shop)
	s.deleteAll("shop", 1)
	equal(t, "rows that came late", value[int](s, "select (select count(*) from posthorn.waiting_jobs) + (select count(*) from posthorn.events)"), 0)
}
