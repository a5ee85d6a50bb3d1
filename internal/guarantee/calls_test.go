package guarantee

import (
	"context"
	"strconv"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
)

// calls are statements that are made one at a time, each in a transaction of its own that
// is rolled back. The words in them that begin with $ are names in the world of crowd.
type calls struct {
	before     string // a statement that comes first in each transaction, and is not measured
	reads      int64  // how many rows and index entries a call may read; few by default
	statements []string
}

// few is how many rows and index entries a call may read that works on ten things or less.
const few = 800

const (
	takeLease = `
		select posthorn.take($plain, 'w', 10, '1 minute', '$lease');
		select set_config('held.lease', id::text, true), set_config('held.attempt', attempt::text, true), set_config('held.first', coalesce(lo, ids[1])::text, true),
			set_config('held.last', coalesce(hi, ids[cardinality(ids)])::text, true)
		from posthorn.leases where token = '$lease'`
	held       = "current_setting('held.lease')::bigint, current_setting('held.attempt')::int"
	leadRelay  = "posthorn.lead_relay($out, 'supervisor-h-1-0123abcd', '1 minute') r"
	takeRelay  = leadRelay + ", posthorn.take_relay($out, 'supervisor-h-1-0123abcd', r.term, 10, '1 minute', '$lease') t"
	leadImport = "posthorn.lead_import($import, 'importer-h-1-0123abcd', '1 minute') i"
	leadHooks  = "posthorn.lead_webhooks($webhooks, 'sender-h-1-0123abcd', '1 minute') h"
	takeHooks  = leadHooks + ", posthorn.take_webhooks($webhooks, 'sender-h-1-0123abcd', h.term, 10, '1 minute') t"
	someEvents = "array_fill('e'::text, array[10]), array_fill('{}'::json, array[10])"
	someJobs   = "select array_agg(id) ids, array_agg(attempt) attempts from posthorn.claim_jobs('default', 'w', '{t}', 10)"
)

// everyday are the calls that programs make. Each works on a few things among many.
var everyday = []calls{
	// The log.
	{statements: []string{
		"select posthorn.append_event_log('default', 'e', '{}', 'n')",
		"select posthorn.append_event_log(p_namespace => 'default', p_event_type => 'e', p_payload => '{}', p_producer_node_id => 'n')",
		"insert into posthorn.outbox_event (stream_name, event_type, payload) values ('default', 'e', '{}')",
		"select posthorn.await_news(pg_current_snapshot(), pg_current_snapshot(), 0, '0')",
		"select posthorn.may_have_news(pg_current_snapshot()::text, 0, 0)",
		"select posthorn.watch_in_turn('for all', true, true)",
		"select count(*) from posthorn.brief_events('default', max_events => 10)",
		"select posthorn.cursor_after('default', $event)",
		"select posthorn.cursor_at('infinity')",
		"select posthorn.cursor_between(posthorn.cursor_at('-infinity'), posthorn.cursor_at('infinity'))",
		"select posthorn.queue_name_for_namespace('default'), posthorn.dead_letter_queue_name_for_namespace('default')",
		"select posthorn.define_namespace('third')",
		"select count(*) from posthorn.find_event('default', $event)",
		"select posthorn.first_used('default', '{key-7}')",
		"select posthorn.last_id()",
		"select count(*) from posthorn.list_streams('default', max_streams => 10)",
		"select count(*) from posthorn.maintain_events_table()",
		"select posthorn.origin()",
		"select posthorn.publish('default', 'e', dedup_key => 'key-fresh')",
		"select posthorn.publish('default', 'e', deliver_at => now() + interval '1 hour')",
		"select count(*) from posthorn.publish_batch('default', " + someEvents + ")",
		"select count(*) from posthorn.publish_in_turn('default', " + someEvents + ")",
		`select count(*) from posthorn.publish_many('default', '[{"type": "e"}, {"type": "e"}]')`,
		"select posthorn.publish_to('default', 'wanted', 'w', 'e')",
		"select posthorn.deliver_delayed()",
		"select posthorn.push_table_changes('public.shop')",
		"insert into public.pushed values (1)",
		"select posthorn.stop_table_changes('public.pushed')",
		"select count(*) from posthorn.read_events('default', posthorn.cursor_after('default', $event), 10)",
		"select count(*) from posthorn.read_log('default', posthorn.cursor_after('default', $event), 10)",
		"select count(*) from posthorn.search_events('default', max_events => 10)",
	}},

	// Groups.
	{statements: []string{
		"select count(*) from posthorn.take($plain, 'w', 10, '1 minute', '$lease')",
		"select count(*) from posthorn.claim('default', 'plain', 'w', 10)",
		"select count(*) from posthorn.claim('default', 'keyed', 'w', 10)",
		"select count(*) from posthorn.claim('default', 'wanted', 'w', 10)",
		"select count(*) from posthorn.claim('default', 'fussy', 'w', 10)",
		"select count(*) from posthorn.read_next_events('reader', chunk_size => 10)",
		"select posthorn.catch_up()",
		"select posthorn.keep_subscriptions($wanted)",
		"select posthorn.keep_group($plain, 'n', '{\"order\": \"key\"}')",
		"select posthorn.begin_group('default', 'plain', '{\"order\": \"key\"}')",
		"select count(*) from posthorn.conditions_to_try($fussy)",
		"select posthorn.define_group('default', 'fresh')",
		"select count(*) from posthorn.delete_group('default', 'small')",
		"select posthorn.pause_group('default', 'plain')",
		"select posthorn.resume_group('default', 'plain')",
		"select posthorn.seek('default', 'small', 'infinity')",
		"select count(*) from posthorn.find_groups('default')",
		"select count(*) from posthorn.rank_groups('default', sort => 'oldest')",
		"select count(*) from posthorn.group_leases('default', 'plain')",
		"select count(*) from posthorn.group_retries('default', 'plain')",
		"select count(*) from posthorn.group_handlers('default', 'plain')",
		"select count(*) from posthorn.group_rates('default', 'plain', '7 days', 84)",
		"select posthorn.matches('a.*', 'a.b'), posthorn.name_now($plain, 'w')",
		"select count(*) from posthorn.event_story('default', $event)",
		"select count(*) from posthorn.event_of((select id from posthorn.namespaces where namespace = 'default'), $plain, $event)",
	}},
	{before: takeLease, statements: []string{
		"select count(*) from posthorn.lease_events('$lease')",
		"select count(*) from posthorn.take($plain, 'w', 10, '1 minute', gen_random_uuid(), " + held + ")",
		"select posthorn.extend(" + held + ", '1 minute')",
		"select posthorn.settle_until(" + held + ", current_setting('held.first')::bigint, '1 minute')",
		"select posthorn.cut_lease(" + held + ", current_setting('held.last')::bigint)",
		"select posthorn.release(" + held + ")",
		"select posthorn.settle(" + held + ")",
		"select posthorn.settle(" + held + ", jsonb_build_array(jsonb_build_object('event', current_setting('held.last'))))",
		"select posthorn.settle(" + held + ", jsonb_build_array(jsonb_build_object('event', current_setting('held.last'), 'permanent', true)))",
		"select count(*) from posthorn.settle_failed(" + held + ", jsonb_build_array(jsonb_build_object('event', current_setting('held.last'), 'error', 'no')))",
	}},

	{before: `select posthorn.set_node_handlers('default', 'n', 'wanted', '[{"name": "w", "patterns": []}, {"name": "x", "patterns": ["e"]}]')`, statements: []string{
		"select posthorn.keep_group($wanted, 'n')",
	}},

	// Closing changes each stream and each group of the namespace.
	{reads: 12 * many, statements: []string{"select posthorn.close_namespace('other', 'elsewhere')"}},
	{before: "update posthorn.namespaces set closed_at = now(), closed_by = '3' where namespace = 'other'", statements: []string{
		"select posthorn.await_closed('other', '1 minute')",
		"select count(*) from posthorn.examine_namespaces()",
	}},

	// The first part of a deletion closes, and a further one looks through the tables that have no index by namespaces.
	{before: "update posthorn.namespaces set closed_at = now(), closed_by = '3', quiet_at = now() where namespace = 'other'; " +
		"insert into posthorn.moves (next_id, reason, last_id, timeline, reused_xid) values (0, 'promotion', 0, 1, '4')", reads: 12 * many, statements: []string{
		"select posthorn.delete_namespace('other')",
		"select posthorn.keep_namespace('other')",
	}},
	{before: "update posthorn.namespaces set closed_at = now(), closed_by = '3', quiet_at = now(), deleting_at = now() where namespace = 'other'", reads: 20 * plenty, statements: []string{
		"select posthorn.delete_namespace('other', 10)",
	}},

	// Windows of many events, which read a dozen rows for each.
	{reads: 12 * many, statements: []string{
		"select count(*) from posthorn.claim('default', 'plain', 'w', $many)",
		"select count(*) from posthorn.claim('default', 'keyed', 'w', $many)",
		"select count(*) from posthorn.claim('default', 'wanted', 'w', $many)",
		"select count(*) from posthorn.read_next_events('reader', chunk_size => $many, peek => true)",
		claimAndFail("plain", false),
		claimAndFail("plain", true),
		"select posthorn.try_condition($fussy, $condition, 10)",
		"select posthorn.stop_slow_conditions('default', 'fussy', 10, '1 minute')",
		"select count(*) from posthorn.plan_archive($archive, 10)",
		"select count(*) from " + takeHooks + ", posthorn.webhook_events(t.lease, t.attempt, 10)",
		"select count(*) from " + takeHooks + `, posthorn.record_webhooks($webhooks, 'sender-h-1-0123abcd', h.term, jsonb_build_object(
			'windows', jsonb_build_array(jsonb_build_array(t.lease, t.attempt)),
			'results', jsonb_build_array(jsonb_build_object('webhook', 1, 'event', $event, 'outcome', 'delivered', 'attempts', 1, 'request_id', 'r', 'status', 200, 'duration_ms', 5))))`,
	}},

	// A wait looks at the events since its job was enqueued, up to 10,000.
	{reads: 5000, statements: []string{
		"select posthorn.await_event($running, 'w', 'await', 'e', 'nobody', '1 minute')",
	}},

	// Dead letters.
	{statements: []string{
		`select count(*) from posthorn.list_dead_letters('default', 'plain', '{"limit": 10}')`,
		`select count(*) from posthorn.brief_dead_letters('default', null, '{"limit": 10}')`,
		`select count(*) from posthorn.brief_dead_letters('default', 'keyed', '{"limit": 10}')`,
		`select count(*) from posthorn.dead_letter_envelopes('default', 'plain', '{"limit": 10}')`,
		`select count(*) from posthorn.dead_letter_ids('default', 'plain', '{"limit": 10}')`,
		`select count(*) from posthorn.matching_dead_letters('default', 'plain', '{"ids": [$dead]}')`,
		`select posthorn.count_dead_letters('default', 'plain', '{"ids": [$dead]}')`,
		"select posthorn.count_dead_letters('default', 'keyed')",
		`select posthorn.redrive('default', 'plain', '{"ids": [$dead]}')`,
		"select posthorn.redrive_edited('default', $dead, '{}')",
		`select posthorn.discard('default', 'plain', '{"ids": [$dead]}')`,
		`select posthorn.recover('default', 'plain', '{"ids": [$dead]}')`,
		`select posthorn.purge('default', 'plain', '{"ids": [$dead]}')`,
	}},

	// Projections.
	{statements: []string{
		"select posthorn.define_projection('default', 'fresh')",
		"select posthorn.replacement_name('view')",
	}},

	// Jobs.
	{statements: []string{
		"select posthorn.enqueue('default', 'x', tags => '{t}')",
		"select posthorn.enqueue('default', 'x', tags => '{t}', unique_key => 'fresh')",
		"select posthorn.enqueue('default', 'x', tags => '{fair}', fair_key => 'crowd')",
		"select posthorn.enqueue('default', 'x', tags => '{fair,t}', fair_key => 'fresh', weight => 2)",
		"select posthorn.enqueue('default', 'x', tags => '{fair}')",
		"select count(*) from posthorn.enqueue_batch('default', " + someEvents + ", array_fill('{fair}'::text, array[10]), fair_keys => array_fill('crowd'::text, array[10]))",
		"select count(*) from posthorn.claim_jobs('default', 'w', '{fair}', 10)",
		"select count(*) from posthorn.claim_jobs('default', 'w', '{fair,t}', 10)",
		"select posthorn.delete_job(j) from posthorn.enqueue('default', 'x', tags => '{fair,t}', fair_key => 'crowd') j",
		"select posthorn.enqueue('default', 'x', tags => '{t}', after => array[$pending, $failed])",
		"select count(*) from posthorn.enqueue('default', 'x', tags => '{t}', after => array[$pending]), posthorn.claim_jobs('default', 'w', '{t}', 10)",
		"select count(*) from posthorn.enqueue_job('default', 'x', tags => '{t}')",
		"select count(*) from posthorn.enqueue_batch('default', " + someEvents + ")",
		`select count(*) from posthorn.enqueue_many('default', '[{"title": "x"}, {"title": "x"}]')`,
		"select count(*) from posthorn.enqueue('default', 'x', tags => '{alone}', unique_key => 'fresh') e, posthorn.claim_jobs('default', 'w' || e, '{alone}', 10)",
		"select count(*) from posthorn.claim_jobs('default', 'w', '{limited}', 10)",
		"select count(*) from posthorn.claim_jobs('default', 'w', '{many:1}', 10)",
		"select count(*) from posthorn.claim_jobs('default', 'w', '{t}', 10)",
		"select posthorn.start_job($running, 'w')",
		"select posthorn.complete_job($running, 'w')",
		"select posthorn.fail_job($running, 'w', 'broken')",
		"select posthorn.snooze_job($running, 'w', '1 minute')",
		"select posthorn.heartbeat_job($running, 'w')",
		"select posthorn.save_step($running, 'w', 's')",
		"select posthorn.sleep_job($running, 'w', 's', '1 minute')",
		"select posthorn.wake_jobs()",
		"select count(*) from posthorn.job_steps($running)",
		"select count(*) from (" + someJobs + ") j, posthorn.heartbeat_jobs('w', j.ids, j.attempts, '1 minute')",
		"select count(*) from (" + someJobs + ") j, posthorn.held_jobs('w', j.ids, j.attempts)",
		"select count(*) from (" + someJobs + ") j, posthorn.complete_jobs('w', j.ids, j.attempts)",
		"select count(*) from (" + someJobs + ") j, posthorn.release_jobs('w', j.ids, j.attempts)",
		"select posthorn.cancel_job($pending)",
		"select posthorn.cancel_job($running, jobs_after => 'cancel')",
		"select posthorn.cancel_job($running, jobs_after => 'fail')",
		"select posthorn.cancel_job($blocked)",
		"select posthorn.change_job($blocked, priority => 1)",
		"select posthorn.delete_job($blocked)",
		"select count(*) from posthorn.job_waits($blocked)",
		"select count(*) from posthorn.job_waits($running)",
		"select posthorn.change_job($pending, priority => 1)",
		"select posthorn.delete_job($pending)",
		"select posthorn.reset_job($failed)",
		"select count(*) from posthorn.get_job($pending)",
		"select count(*) from posthorn.get_job($failed)",
		"select count(*) from posthorn.get_jobs('default', array[$pending, $running, $failed]::bigint[])",
		"select count(*) from posthorn.job_history($failed)",
		"select count(*) from posthorn.recent_job_history($failed)",
		"select count(*) from posthorn.timed_job_history($failed)",
		"select count(*) from posthorn.job_outlook($failed)",
		"select count(*) from posthorn.describe_job($failed)",
		"select count(*) from posthorn.explain_waits('default', array[$pending, $running]::bigint[])",
		"select count(*) from posthorn.browse_jobs('default', max_jobs => 10)",
		"select count(*) from posthorn.search_jobs('default', max_jobs => 10)",
		"select count(*) from posthorn.list_jobs('default', max_jobs => 10)",
		"select count(*) from posthorn.list_jobs('default', 'FAILED', max_jobs => 10)",
		"select posthorn.count_jobs('default', 'FAILED')",
		"select posthorn.count_jobs_to_steer('default', 'FAILED')",
		"select count(*) from posthorn.steer_jobs('default', 'retry', 'FAILED')",
		"select count(*) from posthorn.steer_jobs('default', 'cancel', 'PENDING', max_jobs => 10)",
		"select posthorn.steer_chosen_jobs('default', 'cancel', array[$pending, $blocked]::bigint[])",
		"select posthorn.resume_job_tag('default', 'fresh')",
		"select count(*) from posthorn.maintain_job_tables()",
	}},

	// Schedules.
	{statements: []string{
		"select posthorn.schedule('default', 'fresh', '@daily', 'e')",
		`select posthorn.schedule_job('default', 'fresh', '@daily', '{"title": "x"}')`,
		"select posthorn.unschedule('default', 'daily')",
		"select posthorn.pause_schedule('default', 'daily')",
		"select posthorn.resume_schedule('default', 'daily')",
		"select posthorn.run_schedule_now('default', 'daily')",
		"select posthorn.run_scheduled_task('$task')",
		"select posthorn.fire_schedules()",
		"select posthorn.next_run('@daily')",
		"select posthorn.next_runs('@daily')",
		"select posthorn.pg_cron_job_name()",
	}},

	// Relays and imports.
	{statements: []string{
		"select posthorn.define_relay('default', 'fresh')",
		"select coalesce(bool_or(r.imported), false) from posthorn.relays r where r.group_id = $out::bigint",
		"select posthorn.note_relay_error($out, 'supervisor-h-1-0123abcd', r.term, 'broken') from " + leadRelay,
		"select posthorn.owed_looks($out, 'supervisor-h-1-0123abcd', r.term) from " + leadRelay,
		`select posthorn.note_lost_events($out, 'supervisor-h-1-0123abcd', r.term, '{s1, s1}', array[$event, $event + 1], '{e, e}',
			array['{}', '{}']::json[], array[now(), now()]) from ` + leadRelay,
		`select count(*) from ` + leadRelay + `, posthorn.note_entries($out, 'supervisor-h-1-0123abcd', r.term, '{s1, s1}', array[$event, $event + 1], '{e, e}',
			array['{}', '{}']::json[], array[now(), now()])`,
		"select posthorn.note_look($out, 'supervisor-h-1-0123abcd', r.term, 7) from " + leadRelay,
		"select count(*) from posthorn.owed_archive_look($archive)",
		"select count(*) from posthorn.forgotten_segments($archive, '{1}', '{2}')",
		`select posthorn.note_archived_events($archive, '{s1, s1}', array[$event, $event + 1], '{e, e}', array['{}', '{}']::json[], array[now(), now()])`,
		"select posthorn.note_archive_look($archive, 7)",
		"select posthorn.resign_relay($out, 'supervisor-h-1-0123abcd', r.term) from " + leadRelay,
		"select posthorn.settle_relay($out, 'supervisor-h-1-0123abcd', r.term, t.lease, t.attempt) from " + takeRelay,
		"select count(*) from posthorn.list_aside($out)",
		"select count(*) from " + leadRelay + ", posthorn.take_aside($out, 'supervisor-h-1-0123abcd', r.term, '{1, 2, 3}', '1 minute', '$lease')",
		"select count(*) from " + leadRelay + ", posthorn.settle_aside($out, 'supervisor-h-1-0123abcd', r.term, '{}')",
		"select posthorn.define_import('default', 'fresh', 'nats://h', 'nats')",
		"select posthorn.delete_import('default', 'in')",
		"select count(*) from posthorn.import_positions($import)",
		"select count(*) from posthorn.list_import_dead_letters('default', 'in')",
		"select posthorn.note_import_lag($import, 'importer-h-1-0123abcd', i.term, '{a}', '{1}', array[now()]) from " + leadImport,
		"select posthorn.note_import_error($import, 'importer-h-1-0123abcd', i.term, 'a', 'broken') from " + leadImport,
		"select posthorn.resign_import($import, 'importer-h-1-0123abcd', i.term) from " + leadImport,
		`select posthorn.import_events($import, 'importer-h-1-0123abcd', i.term, '{fresh}', '{""}', '{2}', array['$lease']::uuid[], '{other}', '{false}',
			'{1, 1}', '{1, 2}', '{e, e}', array['{}', '{}']::json[], array[now(), now()]) from ` + leadImport,
	}},

	// Failovers.
	{before: "insert into posthorn.moves (next_id, reason, last_id, timeline) values (9000000000000000, 'crash', 1, 1)", statements: []string{
		"select count(*) from posthorn.list_failovers('default')",
		"select count(*) from posthorn.list_lost_events('default', 1)",
		"select posthorn.bring_back('default', 1)",
		"select count(*) from posthorn.failover_span('default', 1)",
		"select count(*) from posthorn.imported_since('default', posthorn.origin(), 'default', 1, 9000000000000000, after => pg_sequence_last_value('posthorn.event_id') - 10)",
		`select posthorn.note_imported_events('default', 'reports', '{s1, s1}', array[$event, $event + 1], '{e, e}', array['{}', '{}']::json[], array[now(), now()])`,
	}},

	// Archives.
	{statements: []string{
		"select count(*) from posthorn.define_archive('default', 'fresh', 'file:///fresh')",
		"select posthorn.relist_archive('default', 'cold')",
		"select count(*) from posthorn.unarchived('default', 'default', array[$event, $event + 1, $event + 2])",
		"select posthorn.end_replay('default', 'again', r.run) from posthorn.begin_replay('default', 'again', 'group plain') r",
		`select posthorn.replay_to_group('default', 'again', r.run, 'plain', '{1}', '{s1}', '{e}', '{null}', '{"{}"}', array['{}']::json[], array['{}']::json[], array[now()])
			from posthorn.begin_replay('default', 'again', 'group plain') r`,
		`select posthorn.replay_to_stream('default', 'again', r.run, 's1', '{1}', '{e}', '{null}', '{"{}"}', array['{}']::json[], array['{}']::json[])
			from posthorn.begin_replay('default', 'again', 'stream s1') r`,
	}},
	{before: "select count(*) from posthorn.plan_archive($archive, 10)", statements: []string{
		"select count(*) from posthorn.lease_archive_stream($archive, 'host-1-0badcafe')",
		"select posthorn.extend_archive_stream($archive, l.stream_id, l.owner_id, l.attempt, '1 minute') from posthorn.lease_archive_stream($archive, 'host-1-0badcafe') l",
		"select count(*) from posthorn.lease_archive_stream($archive, 'host-1-0badcafe') l, posthorn.unwritten_segment($archive, l.stream_id) u, posthorn.segment_events($archive, l.stream_id, u.first_id)",
		`select posthorn.finish_segment($archive, l.stream_id, l.owner_id, l.attempt, u.first_id, 1, 'sum', u.events, now(), now(), null)
			from posthorn.lease_archive_stream($archive, 'host-1-0badcafe') l, posthorn.unwritten_segment($archive, l.stream_id) u`,
	}},
	{before: `select posthorn.finish_segment($archive, l.stream_id, l.owner_id, l.attempt, u.first_id, 1, 'sum', u.events, now(), now(), null)
			from posthorn.lease_archive_stream($archive, 'host-1-0badcafe') l, posthorn.unwritten_segment($archive, l.stream_id) u`, statements: []string{
		"select count(*) from posthorn.lease_archive_stream($archive, 'host-1-0badcafe') l, posthorn.list_days($archive, l.stream_id)",
		`select posthorn.finish_day($archive, l.stream_id, l.owner_id, l.attempt, d.day, d.segments, 'sum')
			from posthorn.lease_archive_stream($archive, 'host-1-0badcafe') l, posthorn.unlisted_days($archive, l.stream_id) d, posthorn.list_segments($archive, l.stream_id, d.day)`,
		"select posthorn.finish_archive_stream($archive, l.stream_id, l.owner_id, l.attempt) from posthorn.lease_archive_stream($archive, 'host-1-0badcafe') l",
	}},

	// Streams and their keys.
	{statements: []string{
		"select posthorn.set_stream_policy('default', 'fresh', 'restricted')",
		"select posthorn.add_stream_key('default', 'secret', 2, '', '\\x02')",
		"select posthorn.use_stream_key('default', 'secret', 1, 10)",
		"select posthorn.rotate_stream_key('default', 'secret')",
		"select posthorn.shred_stream_keys('default', 'secret')",
		"select count(*) from posthorn.load_stream_keys('default', 'secret')",
		"select count(*) from posthorn.list_stream_keys('default', 'secret')",
		"select count(*) from posthorn.confidential_streams('default')",
		"select count(*) from posthorn.restricted_streams('default')",
		"select count(*) from posthorn.needed_keepers()",
		"select posthorn.check_confidential('{default}', '{secret}')",
		"select posthorn.sealed_with('{}')",
		"select count(*) from posthorn.group_streams('default', 'plain', '{secret}')",
		"select count(*) from posthorn.held_streams('default', 'small', '{secret}')",
		"select count(*) from posthorn.lease_streams('default', 1, '{secret}')",
		"select posthorn.stops_at('default', 'view', '{secret}')",
	}},

	// Webhooks.
	{statements: []string{
		`select posthorn.change_webhook('default', 'quick', '{"url": "https://example.org"}')`,
		"select posthorn.rotate_webhook_secret('default', 'quick')",
		"select posthorn.test_webhook('default', 'quick')",
		`select count(*) from posthorn.list_webhook_attempts('default', '{"webhook": "quick", "limit": 10}')`,
		"select count(*) from posthorn.webhook_rates('default', 'quick', '7 days', 84)",
		"select count(*) from posthorn.webhook_bodies('default', 'quick', array[$event])",
		"select count(*) from posthorn.webhook_namespaces()",
		"select posthorn.webhook_slot(1, 1)",
		"select count(*) from " + leadHooks,
		"select posthorn.resign_webhooks($webhooks, 'sender-h-1-0123abcd', h.term) from " + leadHooks,
		"select count(*) from " + leadHooks + ", posthorn.look_at_webhooks($webhooks, 'sender-h-1-0123abcd', h.term)",
		"select count(*) from " + leadHooks + `, posthorn.due_webhooks($webhooks, 'sender-h-1-0123abcd', h.term, array(select id from posthorn.webhooks), '{5, 5, 5}', '{}', '{}')`,
	}},

	// Nodes, tokens and the audit log.
	{statements: []string{
		"select posthorn.register_node('default', 'n')",
		"select posthorn.touch_node_heartbeat('n')",
		`select posthorn.set_node_handlers('default', 'n', 'plain', '[{"name": "h", "patterns": ["*"]}]')`,
		"select posthorn.create_token('fresh', sha256('fresh'), 'p', '{admin}')",
		"select posthorn.grant_token($token, 'granted', sha256('granted'), 'p', '{admin}')",
		"select count(*) from posthorn.find_token(sha256('7'))",
		"select posthorn.token_end(sha256('7'))",
		"select posthorn.tokens_required()",
		"select posthorn.revoke_token($token)",
		"select posthorn.end_action(posthorn.begin_action('default', 'a', 'redrive'))",
		"select posthorn.count_action(posthorn.begin_action('default', 'a', 'redrive'), 1)",
		"select posthorn.record_action('default', 'a', 'redrive', '', '{}', 1)",
		"select count(*) from posthorn.list_actions('default')",
		"select posthorn.namespace_id('default'), posthorn.now(), posthorn.setting('dedup_period')",
		"select version from posthorn.schema_version",
		"select count(*) from posthorn.rates('default')",
		"select count(*) from posthorn.rates('default', '7 days', 84)",
		"select count(*) from posthorn.job_rates('default', '7 days', 84, 't')",
		"select count(*) from posthorn.busiest_tags('default', '7 days', 84)",
	}},

	// These may read whole tables of what is under way: leases, retries, running jobs,
	// subscriptions, schedules, delayed events or keys. Or they read ahead, up to ten
	// thousand events.
	{reads: 8 * plenty, statements: []string{
		"select posthorn.has_unread('default', 'plain')",
		"select count(*) from posthorn.busy_workers('default')",
		"select count(*) from posthorn.busy_work('default', trouble => 'slow')",
		"select posthorn.redeliver_webhook('default', 'quick', array[$event])",
		"select posthorn.cancel_delayed('default', posthorn.publish('default', 'e', deliver_at => now() + interval '1 hour'))",
		"select posthorn.set_group_cursor('reader', next_cursor) from posthorn.read_next_events('reader', chunk_size => 1)",
		"select posthorn.stop_condition($fussy, $condition, 'slow')",
		"select posthorn.subscribe('default', 'wanted', 'fresh', '{\"type\": \"fresh\"}')",
		"insert into posthorn.subscriptions (group_id, name, params) values ('wanted', 'fresh', '{\"type\": \"fresh\"}')",
		`select posthorn.create_webhook('default', 'fresh', '{"url": "https://example.com"}')`,
		"select count(*) from " + leadHooks + ", posthorn.webhook_endpoints($webhooks, 'sender-h-1-0123abcd', h.term)",
		"select posthorn.unsubscribe('default', 'wanted', 'w')",
		"select count(*) from posthorn.preview_seek('default', 'small', 'infinity')",
		"select posthorn.release_node('default', 'n')",
		"select count(*) from posthorn.outcomes('default', $event)",
		"update posthorn.subscriptions set params = '{\"type\": \"fresh\"}' where group_id = 'wanted' and name = 'w'",
		"delete from posthorn.subscriptions where group_id = 'wanted' and name = 'w'",
		`select posthorn.settle_projection(c.lease, c.attempt, c.first, c.last) from (
			select min(lease) lease, min(attempt) attempt, min(event_id) first, max(event_id) last from posthorn.claim('default', 'view', 'w', 10)) c`,
		"select posthorn.fail_projection(lease, attempt, event_id, 'broken') from posthorn.claim('default', 'view', 'w', 1)",
		"select posthorn.rebuild_projection('default', 'view')",
		"select count(*) from posthorn.begin_replacement('default', 'view'), posthorn.finish_replacement('default', 'view')",
		"select count(*) from posthorn.begin_replacement('default', 'view'), posthorn.abandon_replacement('default', 'view')",
		"select posthorn.set_job_limit('default', 'fresh', max_running => 1)",
		"select posthorn.pause_job_tag('default', 'fresh')",
		"select posthorn.use_pg_cron(false)",
		"select posthorn.streams_of('default', 'group', 'plain')",
		"select posthorn.delete_webhook('default', 'quick')",
		"select posthorn.disable_webhook('default', 'quick'), posthorn.enable_webhook('default', 'quick')",
		"select posthorn.remove_node('default', 'n')",
		"select posthorn.tend()",
		"select posthorn.tend(in_turn => true)",
		"select posthorn.tend_part(part) from unnest(posthorn.upkeep_parts()) part",
	}},

	// This reads the names of all streams, with those of twins that were merged.
	{reads: plenty, statements: []string{"select posthorn.open_namespace('other')"}},

	// These read all that there is of what they count or list: a row for each, or a few.
	{reads: 40 * plenty, statements: []string{
		"select count(*) from posthorn.dead_letter_reasons('default')",
		"select count(*) from posthorn.job_counts('default')",
		"select count(*) from posthorn.browse_jobs('default', state => 'retry', max_jobs => 10)",
		"select count(*) from posthorn.list_job_limits('default')",
		"select count(*) from posthorn.list_stuck_jobs('default')",
		"select count(*) from posthorn.list_stuck_jobs('default', 'held back')",
		"select count(*) from posthorn.stuck_with('default', 'lost', 1)",
		"select count(*) from posthorn.stuck_with('default', 'not taken', 1)",
		"select count(*) from posthorn.stuck_with('default', 'blocks others', 1)",
		"select count(*) from posthorn.find_job_tags('default', 'tenant 7')",
		"select count(*) from posthorn.find_workers('default', 'w')",
		"select count(*) from posthorn.job_tags_now('default')",
		"select count(*) from posthorn.job_tags_now('default', '{mail}')",
		"select count(*) from posthorn.limited_tags(true)",
		"select count(*) from posthorn.list_tokens()",
		"select posthorn.revoke_tokens()",
		"select count(*) from posthorn.hidden_things('default', '{secret}')",
		"select count(*) from posthorn.hidden_handlers('default', '{secret}')",
		"select posthorn.is_hidden('default', '{secret}', 'group', 'plain')",
		"select posthorn.check_seen('default', '{secret}', 'group', 'plain')",
		"select posthorn.check_name_free('default', '{secret}', 'group', 'plain')",
		"select posthorn.check_streams_named('default', '{secret}')",
		"select count(*) from posthorn.worst_groups('default')",
		"select count(*) from posthorn.summary('default')",
		"select count(*) from posthorn.stuck_jobs()",
	}},
	{reads: 100 * plenty, statements: []string{"select count(*) from posthorn.doctor()", "select count(*) from posthorn.diagnose()"}}, // most of these for each group
}

// claimAndFail is a call that claims many events, and settles them as failures.
func claimAndFail(group string, permanent bool) string {
	return `
		with claimed as materialized (select * from posthorn.claim('default', '` + group + `', 'w', $many)), settled as materialized (
			select posthorn.settle(min(c.lease), min(c.attempt), jsonb_agg(jsonb_build_object('event', c.event_id, 'error', 'no', 'permanent', ` + strconv.FormatBool(permanent) + `)))
			from claimed c)
		select count(*) from claimed cross join settled`
}

// caller makes a call of Go in a transaction.
type caller struct {
	context.Context
	*admin.Admin
	db pg.DB
}

// programs are the calls of Go whose statements read tables and views themselves, with how
// much they may read.
var programs = map[int64]map[string]func(c caller) error{few: {
	"ArchivedStreams": func(c caller) error { return errorOf(c.ArchivedStreams(c, "cold")) },
	"GroupKind":       func(c caller) error { return errorOf(c.GroupKind(c, "plain")) },
	"GroupPolicy":     func(c caller) error { return errorOf(c.GroupPolicy(c, "plain")) },
	"Import":          func(c caller) error { return errorOf(c.Import(c, "in")) },
	"ImportedStreams": func(c caller) error { return errorOf(c.ImportedStreams(c, "in")) },
	"Namespaces":      func(c caller) error { return errorOf(c.Namespaces(c)) },
	"Webhook":         func(c caller) error { return errorOf(c.Webhook(c, "quick")) },
	"Subscriptions":   func(c caller) error { return errorOf(c.Subscriptions(c, "fussy")) },
	"FindGroup":       func(c caller) error { return errorOf(pg.FindGroup(c, c.db, "default", "plain")) },
}, 8 * plenty: { // with the settings of the server, these may read all events of a namespace
	"StreamsAhead": func(c caller) error { return errorOf(pg.StreamsAhead(c, c.db, "default", 0, 10)) },
	"LogEvents": func(c caller) error {
		for _, err := range pg.LogEvents(c, c.db, "default", 0, 1<<40, time.Time{}, time.Time{}, 10) {
			if err != nil {
				return err
			}
		}
		return nil
	},
}, 20 * plenty: { // these count leases, retries, and up to ten thousand events that a group is behind, or read the names of all
	"Archives":    func(c caller) error { return errorOf(c.Archives(c)) },
	"Archive":     func(c caller) error { return errorOf(c.Archive(c, "cold")) },
	"Group":       func(c caller) error { return errorOf(c.Group(c, "plain")) },
	"GroupsNamed": func(c caller) error { return errorOf(c.GroupsNamed(c, []string{"small", "plain"})) },
	"Nodes":       func(c caller) error { return errorOf(c.Nodes(c)) },
	"Projection":  func(c caller) error { return errorOf(c.Projection(c, "view")) },
	"Relay":       func(c caller) error { return errorOf(c.Relay(c, "out")) },
	"Schedule":    func(c caller) error { return errorOf(c.Schedule(c, "daily")) },
}}

func errorOf[T any](_ T, err error) error { return err }
