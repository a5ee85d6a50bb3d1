package guarantee

import "testing"

// impostors are tables, functions and operators in a user's schema with the names of
// objects that our functions use. Each records its use.
const impostors = `
create schema evil;
create sequence evil.used;

do $$
declare
	r record;
begin
	for r in select c.relname from pg_catalog.pg_class c
		where c.relnamespace = 'posthorn'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
	loop
		execute format('create table evil.%I (like posthorn.%1$I)', r.relname);
		execute format('create function evil.%I_trap() returns trigger language plpgsql as
			''begin perform pg_catalog.nextval(''''evil.used''''); return null; end''', r.relname);
		execute format('create trigger trap before insert or update or delete on evil.%I for each statement execute function evil.%1$I_trap()', r.relname);
	end loop;
	for r in select p.proname, pg_catalog.pg_get_function_identity_arguments(p.oid) as arguments,
			pg_catalog.format_type(p.prorettype, null) as result
		from pg_catalog.pg_proc p
		where p.pronamespace = 'pg_catalog'::regnamespace and p.prokind = 'f' and not p.proretset and p.provariadic = 0
			and p.proname = any (array['now', 'clock_timestamp', 'nextval', 'currval', 'setval', 'current_setting', 'set_config', 'octet_length', 'strpos',
				'cardinality', 'hashtextextended', 'hashtext', 'abs', 'left', 'replace', 'lower', 'random', 'power', 'gen_random_uuid',
				'pg_current_xact_id', 'pg_current_xact_id_if_assigned', 'pg_current_snapshot', 'pg_visible_in_snapshot', 'pg_snapshot_xmin',
				'pg_snapshot_xmax', 'pg_postmaster_start_time', 'jsonb_typeof', 'to_char', 'date_trunc', 'encode', 'decode', 'regexp_replace', 'string_to_array', 'starts_with', 'length', 'right', 'substr',
				'convert_to', 'convert_from', 'pg_advisory_xact_lock', 'pg_try_advisory_xact_lock', 'make_interval', 'quote_ident', 'quote_literal'])
			and not exists (select from pg_catalog.unnest(p.proargtypes) a where pg_catalog.format_type(a, null) like 'any%')
			and pg_catalog.format_type(p.prorettype, null) not like 'any%'
	loop
		execute format('create function evil.%I(%s) returns %s language plpgsql as
			''begin perform pg_catalog.nextval(''''evil.used''''); raise exception ''''evil''''; end''', r.proname, r.arguments, r.result);
	end loop;
	for r in select o.oprname, pg_catalog.format_type(o.oprleft, null) as l, pg_catalog.format_type(o.oprright, null) as r,
			pg_catalog.format_type(o.oprresult, null) as result, row_number() over () as n
		from pg_catalog.pg_operator o
		where o.oprnamespace = 'pg_catalog'::regnamespace and o.oprname = any (array['=', '<>', '<', '<=', '>', '>=', '||', '+', '-', '->>', '->', '~', '!~', '~~', '!~~', '?'])
			and pg_catalog.format_type(o.oprleft, null) = any (array['text', 'bigint', 'integer', 'timestamp with time zone', 'xid8', 'jsonb', 'uuid', 'interval'])
			and pg_catalog.format_type(o.oprright, null) not like 'any%'
	loop
		execute format('create function evil.operator_%s(%s, %s) returns %s language plpgsql as
			''begin perform pg_catalog.nextval(''''evil.used''''); raise exception ''''evil''''; end''', r.n, r.l, r.r, r.result);
		execute format('create operator evil.%s (leftarg = %s, rightarg = %s, function = evil.operator_%s)', r.oprname, r.l, r.r, r.n);
	end loop;
end $$;

-- Names of types are looked up in the search path too.
create function evil.used_as_type() returns boolean language plpgsql as
	'begin perform pg_catalog.nextval(''evil.used''); return true; end';
do $$
declare
	name text;
begin
	foreach name in array array['text', 'json', 'jsonb', 'timestamptz', 'uuid', 'xid8', 'pg_snapshot'] loop
		execute format('create domain evil.%1$I as pg_catalog.%1$I check (evil.used_as_type())', name);
	end loop;
end $$;

create temporary table events as select * from posthorn.events;
create temporary table leases as select * from posthorn.leases;
create temporary table groups as select * from posthorn.groups;
set search_path = evil, pg_temp, public, pg_catalog;
`

// The owner of a schema cannot make our functions, which run as their owner, use
// objects in that schema.
func TestSearchPathOfTheCallerChangesNothing(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"attempts": 3}`)
	s.exec("select posthorn.define_group('default', 'keyed', '{\"order\": \"key\"}')")
	observer := s.another()
	s.exec(impostors)

	for _, sql := range []string{
		"select posthorn.define_namespace('another')",
		"select posthorn.define_group('default', 'other', '{\"delays\": [\"1 second\"], \"start\": \"beginning\"}')",
		"select posthorn.publish('default', 'e', '{\"a\": 1}'::pg_catalog.json, key => 'k', tags => '{red}')",
		"select posthorn.publish('default', 'e', '{\"a\": 1}'::pg_catalog.jsonb, stream => 'new')",
		"select posthorn.publish('default', 'e', '{\"a\": 1}'::pg_catalog.json, key => 'k', metadata => '{\"b\": 2}')",
		"select posthorn.publish('default', 'e', '{\"a\": 1}'::pg_catalog.json, stream => 'new')",
		"select posthorn.publish('default', 'e', '{\"a\": 1}'::pg_catalog.text, dedup_key => 'd')",
		"select posthorn.publish('default', 'e', deliver_at => '2100-01-01')",
		"select posthorn.publish_many('default', '[{\"type\": \"e\", \"tags\": [\"red\"], \"deliver_at\": \"2020-01-01\"}]')",
		"select posthorn.publish_batch('default', array['e'], array['{}']::pg_catalog.json[], streams => array['newer'])",
		"select posthorn.tend()",
		"select posthorn.maintain_events_table()",
		"select posthorn.claim('default', 'billing', 'w', 2)",
		"select posthorn.claim('default', 'keyed', 'w', 2)",
		"select posthorn.extend(1, 1, '1 minute')",
		"select posthorn.settle(1, 1, '[{\"event\": 1, \"permanent\": true}, {\"event\": 2, \"retry_in\": \"0\"}]')",
		"select posthorn.take(1, 'w', 10, '1 minute', '6f2d3c1e-0000-4000-8000-000000000001')",
		"select posthorn.lease_events('6f2d3c1e-0000-4000-8000-000000000001')",
		"select posthorn.release_node('default', 'w')",
		"select posthorn.claim('default', 'billing', 'w')",
		"select posthorn.list_dead_letters('default')",
		"select posthorn.redrive('default', 'billing', '{\"type\": \"e\"}')",
		"select posthorn.purge('default', 'billing')",
		"select posthorn.read_events('default', posthorn.cursor_at('-infinity'))",
		"select posthorn.pause_group('default', 'billing'), posthorn.resume_group('default', 'billing')",
		"select posthorn.seek('default', 'billing', '2020-01-01')",
		"select * from posthorn.group_status",
		"select posthorn.append_event_log('default', 'e', '{}', 'n', '6f2d3c1e-0000-4000-8000-000000000001', '{\"a\": \"\\u00fc\"}')",
		"select * from posthorn.event_log",
		"select posthorn.register_node('default', 'n 1', 'N')",
		"select posthorn.touch_node_heartbeat('n_1')",
		"select posthorn.set_node_handlers('default', 'n_1', 'keyed', '[{\"name\": \"h\", \"patterns\": [\"a.*.b\", \"a.>\"]}]')",
		"select posthorn.group_handlers('default', 'keyed'), posthorn.matches('a.*.b', 'a.x.b'), posthorn.matches('a.*', 'a.x')",
		"select posthorn.begin_group('default', 'keyed', '{\"order\": \"key\", \"backoff\": {\"to\": \"1 hour\"}}')",
		"select posthorn.keep_group(1, 'n_1', '{\"order\": \"none\"}')",
		"select * from posthorn.node_status",
		"select posthorn.outcomes('default', 1)",
		"select posthorn.dead_letter_envelopes('default')",
		"select posthorn.event_envelope('default', 1, 'e', '{}', '{}', '2020-01-01', 1)",
		"select posthorn.remove_node('default', 'n_1')",
		"select posthorn.delete_group('default', 'other')",
		"select posthorn.subscribe('default', 'wants', 'a', '{\"type\": [\"e\", \"f.*\"], \"tags_any\": [\"red\"], \"payload\": {\"a\": 1}}')",
		"select posthorn.subscribe('default', 'wants', 'b', '{\"conditions_sql\": \"s.params @> jsonb_build_object(''t'', e.type) and e.payload->>''a'' = ''1''\", \"params\": {\"t\": \"e\"}, \"expiry_interval\": \"1 day\"}')",
		"select posthorn.subscribe('default', 'wants', 'c', '{\"conditions_sql\": \"length(e.type) / (e.payload->>''a'')::int = 1\"}')",
		"insert into posthorn.subscriptions (group_id, params) values ('wants', '{\"key\": \"k\"}')",
		"select posthorn.publish('default', 'e', '{\"a\": 0}'::pg_catalog.json, tags => '{red}')",
		"select posthorn.claim('default', 'wants', 'w')",
		"select posthorn.subscribe('default', 'wants', 'c', '{\"type\": \"e\"}')",
		"select posthorn.claim('default', 'wants', 'w')",
		"select posthorn.stop_slow_conditions('default', 'wants', 10, '1 minute')",
		"select posthorn.publish_to('default', 'wants', 'a', 'e')",
		"select posthorn.outcomes('default', 9)",
		"select posthorn.tend()",
		"select posthorn.unsubscribe('default', 'wants', 'a')",
	} {
		s.exec(sql)
	}

	equal(t, "impostors used", value[bool](observer, "select is_called from evil.used"), false)
	equal(t, "events", value[int](observer, "select count(*) from posthorn.events"), 10)
}
