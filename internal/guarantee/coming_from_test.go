package guarantee

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// otherSystems are the tables of other systems, with the columns that docs/coming-from.md
// and docs/coming-from-jobs.md read, and none of their other constraints.
const otherSystems = `
	create schema pgmq;
	create table pgmq.q_core_events_demo (msg_id bigint generated always as identity primary key, read_ct int not null default 0,
		enqueued_at timestamptz not null default now(), vt timestamptz not null default now(), message jsonb, headers jsonb);
	create table pgmq.q_mail (like pgmq.q_core_events_demo including all);
	create schema core;
	create table core.scheduled_tasks (task_id uuid primary key, namespace text not null, job_id int, name text not null,
		cron_expression text not null, event_type text not null, payload jsonb, timezone text, active boolean not null);
	create schema cron;
	create table cron.job (jobid bigint primary key);
	create function cron.unschedule(job_id bigint) returns boolean language plpgsql as $$
	begin
		delete from cron.job j where j.jobid = job_id;
		if not found then
			raise exception 'there is no job %', job_id;
		end if;
		return true;
	end $$;
	create schema pgmb;
	create table pgmb.subscriptions (id bigint generated always as identity primary key, group_id text not null,
		conditions_sql text not null, params jsonb not null);
	create schema events;
	create table events.outbox_event (id bigint generated always as identity primary key, stream_name text not null,
		event_type text not null, payload jsonb not null, metadata jsonb, created_at timestamptz not null default now(), published_at timestamptz);
	create type public.river_job_state as enum ('available', 'cancelled', 'completed', 'discarded', 'pending', 'retryable', 'running', 'scheduled');
	create table public.river_job (id bigint generated always as identity primary key, state public.river_job_state not null default 'available',
		attempt smallint not null default 0, max_attempts smallint not null default 25, priority smallint not null default 1,
		args jsonb not null, kind text not null, queue text not null default 'default', tags varchar(255)[] not null default '{}',
		scheduled_at timestamptz not null default now());
	create schema pgboss;
	create table pgboss.job (id uuid not null default gen_random_uuid(), name text not null, priority int not null default 0, data jsonb,
		state text not null default 'created', retry_limit int not null default 2, retry_count int not null default 0,
		retry_delay int not null default 0, singleton_key text, policy text, blocked boolean not null default false,
		blocking boolean not null default false, start_after timestamptz not null default now(), created_on timestamptz not null default now());
	create schema graphile_worker;
	create table graphile_worker._private_jobs (id bigint generated always as identity primary key, task_id int, payload json not null default '{}',
		priority smallint not null default 0, run_at timestamptz not null default now(), attempts smallint not null default 0,
		max_attempts smallint not null default 25, key text unique, locked_at timestamptz);
	create view graphile_worker.jobs as
		select id, null::text queue_name, 'mail'::text task_identifier, attempts, max_attempts, locked_at from graphile_worker._private_jobs;
	create function graphile_worker.complete_jobs(job_ids bigint[]) returns setof graphile_worker._private_jobs language sql as $$
		delete from graphile_worker._private_jobs where id = any (job_ids) and locked_at is null returning *
	$$;
	select posthorn.define_namespace('demo');`

// anImport is a database with the tables of other systems, and a statement of a page that
// moves rows of one of them.
type anImport struct {
	*session
	statement string
	block     string // all statements of its example
}

// importFrom finds the statement that reads a table, which has these rows.
func importFrom(t *testing.T, table, rows string) *anImport {
	t.Helper()
	var pages string
	for _, name := range []string{"coming-from", "coming-from-jobs"} {
		page, err := os.ReadFile("../../docs/" + name + ".md")
		if err != nil {
			t.Fatal(err)
		}
		pages += string(page)
	}
	var found, blocks []string
	for _, block := range sqlBlock.FindAllStringSubmatch(pages, -1) {
		for _, statement := range statementEnd.Split(block[1], -1) {
			if strings.Contains(statement, "from "+table+" ") || strings.Contains(statement, "from "+table+"\n") {
				found, blocks = append(found, statement), append(blocks, block[1])
			}
		}
	}
	if len(found) != 1 {
		t.Fatalf("%d statements of the pages read %s", len(found), table)
	}
	s := database(t)
	s.exec(otherSystems)
	s.exec("set search_path = public")
	s.exec(rows)
	return &anImport{s, found[0], blocks[0]}
}

// moves runs the statement until it has nothing more to do. It must move so many rows, and
// none when it is run again.
func (i *anImport) moves(want int64) {
	i.t.Helper()
	for _, want := range []int64{want, 0} {
		tag, err := i.conn.Exec(i.t.Context(), i.statement)
		if err != nil {
			i.t.Fatalf("%s\n%v", i.statement, err)
		}
		equal(i.t, "moved", tag.RowsAffected(), want)
	}
}

// leavesTo runs the statement while a worker of the other system takes a row, which the
// statement must leave to it.
func (i *anImport) leavesTo(take string) {
	i.t.Helper()
	worker := i.another()
	worker.exec("begin")
	worker.exec(take)
	outcome := i.background(i.statement)
	worker.awaitBlocked(i.session)
	worker.exec("commit")
	if err := outcome(); err != nil {
		i.t.Fatal(err)
	}
}

// Jobs keep their order, times and priorities, and have the attempts that were left to them.
func TestJobsComeFromRiver(t *testing.T) {
	t.Parallel()
	i := importFrom(t, "river_job", `
		insert into river_job (state, kind, args, attempt, max_attempts, priority, queue, tags, scheduled_at) values
			('available', 'sort', '{"n": 1}', 0, 25, 1, 'default', '{}', now() - interval '10 minutes'),
			('scheduled', 'mail', '{"n": 2}', 0, 3, 4, 'default', '{}', now() + interval '1 hour'),
			('retryable', 'sort', '{"n": 3}', 2, 3, 2, 'slow', '{a,b}', now() + interval '5 minutes'),
			('running', 'sort', '{"n": 4}', 1, 25, 1, 'default', '{}', now()),
			('completed', 'sort', '{"n": 5}', 1, 25, 1, 'default', '{}', now()),
			('pending', 'sort', '{"n": 6}', 0, 25, 1, 'default', '{}', now()),
			('discarded', 'sort', '{"n": 7}', 25, 25, 1, 'default', '{}', now()),
			('cancelled', 'sort', '{"n": 8}', 0, 25, 1, 'default', '{}', now()),
			('available', 'sort', '{"n": 9}', 0, 25, 1, 'default', '{}', now() - interval '20 minutes')`)
	i.moves(4)
	equal(t, "jobs", column[string](i.session, `
		select concat_ws(' ', payload->>'n', title, tags, status, priority, max_retries, metadata->'river'->>'id',
			metadata->'river'->>'queue', metadata->'river'->>'tags', metadata->'river'->>'attempt', round(extract(epoch from run_at - now()) / 60))
		from posthorn.jobs order by id`), []string{
		`9 sort {sort} PENDING 0 25 9 default [] 0 -20`,
		`1 sort {sort} PENDING 0 25 1 default [] 0 -10`,
		`3 sort {sort} PENDING -1 1 3 slow ["a","b"] 2 5`,
		`2 mail {mail} PENDING -3 3 2 default [] 0 60`,
	})
	equal(t, "left", column[string](i.session, "select state::text from river_job order by id"), []string{"running", "completed", "pending", "discarded", "cancelled"})
	equal(t, "claimed", column[string](i.session, "select payload->>'n' from posthorn.claim_jobs('default', 'w', '{sort}', 10)"), []string{"9", "1"})

	i.exec("update river_job set state = 'retryable', attempt = 1 where id = 4")
	i.moves(1)
}

func TestAJobIsRiversOrMoved(t *testing.T) {
	t.Parallel()
	i := importFrom(t, "river_job", `insert into river_job (kind, args) values ('sort', '{"n": 1}'), ('sort', '{"n": 2}')`)
	i.leavesTo("update public.river_job set state = 'running', attempt = 1 where id = 1")
	equal(t, "moved", column[string](i.session, "select payload->>'n' from posthorn.jobs"), []string{"2"})
	equal(t, "left", column[int64](i.session, "select id from river_job"), []int64{1})
}

func TestNothingIsMovedIfAJobIsRefused(t *testing.T) {
	t.Parallel()
	i := importFrom(t, "river_job", `insert into river_job (kind, args) values ('sort', '{}'), ('sort', to_jsonb(repeat('x', 1100000)))`)
	i.refused("PH004", i.statement)
	equal(t, "left", value[int](i.session, "select count(*) from river_job"), 2)
	equal(t, "jobs", value[int](i.session, "select count(*) from posthorn.jobs"), 0)
}

// inAllStates are messages: one that waits, a delayed one, one that a worker is reading, and
// one whose worker has died.
const inAllStates = ` values (0, now() - interval '1 minute', '{"n": 1}'), (0, now() + interval '1 hour', '{"n": 2}'),
	(1, now() + interval '5 minutes', '{"n": 3}'), (2, now() - interval '1 minute', '{"n": 4}')`

func TestMessagesComeFromPgmqAsJobs(t *testing.T) {
	t.Parallel()
	i := importFrom(t, "pgmq.q_mail", "insert into pgmq.q_mail (read_ct, vt, message)"+inAllStates+
		"; update pgmq.q_mail set headers = '{\"trace\": \"7f3a\"}' where msg_id = 4")
	i.moves(3)
	equal(t, "jobs", column[string](i.session, `
		select concat_ws(' ', payload->>'n', title, tags, metadata->'pgmq', round(extract(epoch from run_at - now()) / 60))
		from posthorn.jobs order by id`), []string{
		`1 mail {mail} {"msg_id" : 1, "read_ct" : 0, "headers" : null} 0`,
		`2 mail {mail} {"msg_id" : 2, "read_ct" : 0, "headers" : null} 60`,
		`4 mail {mail} {"msg_id" : 4, "read_ct" : 2, "headers" : {"trace": "7f3a"}} 0`,
	})
	equal(t, "left", column[int64](i.session, "select msg_id from pgmq.q_mail"), []int64{3})

	i.exec("update pgmq.q_mail set vt = now() - interval '1 minute'") // its worker has died
	i.moves(1)
}

func TestAMessageIsReadOrMoved(t *testing.T) {
	t.Parallel()
	for _, queue := range []string{"pgmq.q_mail", "pgmq.q_core_events_demo"} {
		t.Run(queue, func(t *testing.T) {
			t.Parallel()
			i := importFrom(t, queue, "insert into "+queue+` (message) values ('{"eventType": "a"}'), ('{"eventType": "b"}')`)
			i.leavesTo("update " + queue + " set read_ct = 1, vt = now() + interval '30 seconds' where msg_id = 1")
			equal(t, "moved", value[int](i.session, "select (select count(*) from posthorn.jobs) + (select count(*) from posthorn.events)"), 1)
			equal(t, "left", column[int64](i.session, "select msg_id from "+queue), []int64{1})
		})
	}
}

// Messages of the event core become events for the groups that exist, in their order.
func TestMessagesComeFromTheEventCore(t *testing.T) {
	t.Parallel()
	i := importFrom(t, "pgmq.q_core_events_demo", "insert into pgmq.q_core_events_demo (read_ct, vt, message)"+inAllStates+`;
		update pgmq.q_core_events_demo set message = jsonb_build_object('namespace', 'demo', 'eventType', 'user.created', 'payload', message,
			'emittedAt', '2026-11-01T08:00:00Z', 'producerNodeId', 'api-1') || case msg_id
				when 4 then '{"scheduledTaskId": "6f2d3c1e-0000-4000-8000-000000000001"}' else '{}' end::jsonb;
		select posthorn.define_group('demo', 'api')`)
	i.moves(3)
	equal(t, "log", column[string](i.session, `
		select concat_ws(' ', event_type, payload, producer_node_id, scheduled_task_id, metadata->>'emittedAt')
		from posthorn.event_log where namespace = 'demo' order by event_id`), []string{
		`user.created {"n": 1} api-1 2026-11-01T08:00:00Z`,
		`user.created {"n": 4} api-1 6f2d3c1e-0000-4000-8000-000000000001 2026-11-01T08:00:00Z`,
	})
	equal(t, "claimed", column[string](i.session, "select payload->>'n' from posthorn.claim('demo', 'api', 'w')"), []string{"1", "4"})
	equal(t, "delayed", column[string](i.session, "select (payload->>'n') || round(extract(epoch from deliver_at - now()) / 60) from posthorn.delayed"), []string{"260"})
	equal(t, "left", column[int64](i.session, "select msg_id from pgmq.q_core_events_demo"), []int64{3})
}

// Schedules keep their ids, and only one of the two systems fires them.
func TestSchedulesComeFromTheEventCore(t *testing.T) {
	t.Parallel()
	i := importFrom(t, "core.scheduled_tasks", `
		insert into cron.job values (7), (8);
		insert into core.scheduled_tasks values
			('6f2d3c1e-0000-4000-8000-000000000001', 'demo', 7, 'cleanup', '0 2 * * *', 'maintenance.cleanup', '{"days": 30}', 'Europe/Berlin', true),
			('6f2d3c1e-0000-4000-8000-000000000002', 'demo', 8, 'paused', '0 3 * * *', 'e', '{}', null, false),
			('6f2d3c1e-0000-4000-8000-000000000003', 'other', 9, 'stays', '0 3 * * *', 'e', '{}', null, true)`)
	i.moves(2)
	equal(t, "schedules", column[string](i.session, `
		select concat_ws(' ', right(task_id::text, 1), namespace, name, cron_expression, event_type, payload, timezone, active, next_run_at > now())
		from posthorn.scheduled_tasks order by task_id`), []string{
		`1 demo cleanup 0 2 * * * maintenance.cleanup {"days": 30} Europe/Berlin t t`,
		`2 demo paused 0 3 * * * e {} UTC f`,
	})
	equal(t, "jobs of pg_cron", value[int](i.session, "select count(*) from cron.job"), 0)
	equal(t, "left", column[string](i.session, "select name from core.scheduled_tasks"), []string{"stays"})
}

func TestSubscriptionsComeFromPGMB(t *testing.T) {
	t.Parallel()
	i := importFrom(t, "pgmb.subscriptions", `
		insert into pgmb.subscriptions (group_id, conditions_sql, params) values
			('live', 's.params @> jsonb_build_object(''topic'', e.topic)', '{"topic": "user.created"}'),
			('live', 's.params @> jsonb_build_object(''topic'', e.topic)', '{"topic": "user.deleted"}')`)
	i.moves(2)
	i.exec("select posthorn.publish('default', t) from unnest(array['user.created', 'user.changed', 'user.deleted']) t")
	equal(t, "read", column[string](i.session, "select topic from posthorn.read_next_events('live')"), []string{"user.created", "user.deleted"})
}

func TestEventsComeFromAnOutbox(t *testing.T) {
	t.Parallel()
	i := importFrom(t, "events.outbox_event", `
		insert into events.outbox_event (stream_name, event_type, payload, metadata, published_at) values
			('stream:user:events', 'UserCreated', '{"n": 1}', '{"trace_id": "a"}', now()),
			('stream:user:events', 'UserCreated', '{"n": 2}', '{"trace_id": "b"}', null),
			('stream:order:events', 'OrderPlaced', '{"n": 3}', null, null)`)
	i.moves(2)
	equal(t, "outbox", column[string](i.session, `
		select concat_ws(' ', stream_name, event_type, payload, metadata, published_at) from posthorn.outbox_event order by id`), []string{
		`stream:user:events UserCreated {"n": 2} {"trace_id": "b", "outbox_id": 2}`,
		`stream:order:events OrderPlaced {"n": 3} {"outbox_id": 3}`,
	})
	equal(t, "left", column[int64](i.session, "select id from events.outbox_event"), []int64{1})
}

// Programs insert into the old table before, while and after it becomes a view. Nothing is lost, and each stream keeps
// its order. The old publisher cannot read the view.
func TestPublishersGoOnWhileAnOutboxMoves(t *testing.T) {
	t.Parallel()
	i := importFrom(t, "events.outbox_event", `
		grant usage on schema events to posthorn_publisher;
		grant insert, select on events.outbox_event to posthorn_publisher;
		insert into events.outbox_event (stream_name, event_type, payload) values ('a', 'e', '{"n": 1}')`)
	publish := func(s *session, n int) {
		s.exec(fmt.Sprintf(`insert into events.outbox_event (stream_name, event_type, payload, metadata) values ('a', 'e', '{"n": %d}', '{}') returning id`, n))
	}
	early, late := i.another(), i.another()
	late.exec(`set role posthorn_publisher;
		prepare publish as insert into events.outbox_event (stream_name, event_type, payload, metadata) values ('a', 'e', $1, '{}') returning id`)
	early.exec("set role posthorn_publisher; begin")
	publish(early, 2)
	switched := i.background(i.block)
	early.awaitBlocked(i.session)
	published := late.background(`execute publish('{"n": 3}')`)
	early.awaitBlocked(late)
	early.exec("commit")
	for _, outcome := range []func() error{switched, published} {
		if err := outcome(); err != nil {
			t.Fatal(err)
		}
	}
	publish(early, 4)
	early.exec("insert into posthorn.outbox_event (stream_name, event_type, payload) values ('a', 'e', '{\"n\": 5}')")
	equal(t, "log", column[string](i.session, "select payload->>'n' from posthorn.outbox_event order by id"), []string{"1", "2", "3", "4", "5"})
	early.refused("42501", "select payload from events.outbox_event")
	i.refused("42703", "select id from events.outbox_event where published_at is null")
	equal(t, "left", value[int](i.session, "select count(*) from events.old_outbox_event"), 0)
}

// Seed 003.1, 003.4: the insert of the outbox publishes, also for publishers, and returns the id.
func TestInsertIntoOutboxEvent(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.exec("set role posthorn_publisher")
	const insert = `insert into posthorn.outbox_event (stream_name, event_type, payload, metadata) values `
	ids := column[int64](s, insert+`('stream:user:events', 'UserCreated', '{"user": 7}', '{"trace_id": "7f3a"}'), ('default', 'b', '{}', null) returning id`)
	s.refused("42501", "select count(*) from posthorn.outbox_event where payload is null")
	s.refused("PH004", insert+"('a', 'b', null, null)")
	s.refused("PH004", insert+"(null, 'b', '{}', null)")
	s.refused("PH001", "insert into posthorn.outbox_event (namespace, stream_name, event_type, payload) values ('nowhere', 'a', 'b', '{}')")
	s.exec("reset role")
	s.refused("PH004", "insert into posthorn.outbox_event (id, stream_name, event_type, payload) values (7, 'a', 'b', '{}')")
	wantEvents(t, s.drain(), ids...)
	equal(t, "the first", value[string](s, "select concat_ws(' ', stream_name, event_type, payload, metadata, published_at) from posthorn.outbox_event where id = $1", ids[0]),
		`stream:user:events UserCreated {"user": 7} {"trace_id": "7f3a"}`)
}

// Seed 000.17–21: the functions of the event core are called by position, and by both names of
// their arguments. run_scheduled_task has one.
func TestArgumentsOfTheEventCore(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.register_node('default', 'n')")
	task := value[string](s, "select posthorn.schedule('default', 'x', '@daily', 'e')::text")
	for _, call := range []string{
		"touch_node_heartbeat('n')", "touch_node_heartbeat(node => 'n')", "touch_node_heartbeat(p_node_id => 'n')",
		"touch_node_heartbeat('n'::text)", "touch_node_heartbeat('n'::varchar)", "touch_node_heartbeat(p_node_id => 'n'::text)",
		"queue_name_for_namespace('a') = 'core_events_a'", "queue_name_for_namespace(p_namespace => 'a-b') = 'core_events_a_b'",
		"dead_letter_queue_name_for_namespace('a') = 'core_events_a_dlq'", "dead_letter_queue_name_for_namespace(p_namespace => 'a') = 'core_events_a_dlq'",
		"append_event_log('default', 'e', '{}', 'n') = 1", "append_event_log('default', 'e'::varchar, '{}', 'n'::text, null, '{}') = 2",
		"append_event_log(namespace => 'default', event_type => 'e', payload => '{}', producer_node_id => 'n') = 3",
		"append_event_log(p_namespace => 'default', p_event_type => 'e', p_payload => '{}', p_producer_node_id => 'n', p_metadata => '{\"a\": 1}') = 4",
		"run_scheduled_task('" + task + "') = 5", "run_scheduled_task('" + task + "', true) is null",
	} {
		if !value[bool](s, "select posthorn."+call) {
			t.Errorf("%s is false", call)
		}
	}
	equal(t, "metadata", value[string](s, "select metadata::text from posthorn.event_log where event_id = 4"), `{"a": 1, "producer": "n"}`)
}
