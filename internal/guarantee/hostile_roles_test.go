package guarantee

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// ourRoles are the roles that programs log in with.
var ourRoles = []string{"posthorn_publisher", "posthorn_consumer", "posthorn_admin"}

// besieged is a database with the targets of an attack: a secret in a table of
// another role, a token, a key of a confidential stream, a restricted stream, a dead
// letter, a schedule and a job.
func besieged(t *testing.T) *session {
	t.Helper()
	s := clinic(t)
	s.define("{}")
	s.bury("a")
	s.exec(makeToken, hashOf("one"), nil)
	s.exec(`create table public.vault as select 'secret' as secret;
		create function public.vault_trap() returns trigger language plpgsql as 'begin return null; end';
		create trigger vault_trap after insert on public.vault for each row execute function public.vault_trap();
		select posthorn.set_stream_policy('default', 'payroll', 'restricted');
		select posthorn.schedule('default', 'nightly', '@daily', 'a');
		select posthorn.enqueue('default', 'job')`)
	return s
}

// arm gives a hostile session a schema with objects that Postgres lets it create:
// tables, types, casts, operators, and objects that have the names of Posthorn's and
// of Postgres's objects and precede them in its search path.
func (s *session) arm(hostile *session) {
	s.t.Helper()
	s.exec("create schema evil authorization " + hostile.conn.Config().User)
	hostile.exec(`
		create function evil.trap() returns trigger language plpgsql as 'begin perform pg_temp.f(1); return new; end';
		create function evil.hook(change jsonb) returns jsonb language plpgsql as 'begin perform pg_temp.f(1); return change; end';
		create table evil.t (id int primary key, v text);
		create table evil.events (id int primary key);
		create type evil.mood as enum ('glad');
		create function evil.as_json(evil.mood) returns json language plpgsql as 'begin perform pg_temp.f(1); return ''1''; end';
		create function evil.as_text(evil.mood) returns text language plpgsql as 'begin perform pg_temp.f(1); return ''1''; end';
		create cast (evil.mood as json) with function evil.as_json(evil.mood);
		create cast (evil.mood as text) with function evil.as_text(evil.mood) as implicit;
		create table evil.moods (id int primary key, m evil.mood, ms evil.mood[], d evil.mood);
		create table evil.named ("a"" from pg_temp.f(1); select '1' --" evil.mood, "%s %1$I" int primary key, "$sql$ or pg_temp.f(1)" pg_catalog.text);
		create function evil.now() returns timestamptz language plpgsql as 'begin perform pg_temp.f(1); return clock_timestamp(); end';
		create function evil.setting(text) returns text language plpgsql as 'begin perform pg_temp.f(1); return ''1''; end';
		create function evil.hashtext(text) returns int language plpgsql as 'begin perform pg_temp.f(1); return 1; end';
		create function evil.same(text, text) returns boolean language plpgsql as 'begin perform pg_temp.f(1); return true; end';
		create operator evil.= (function = evil.same, leftarg = text, rightarg = text);
		create operator evil.~ (function = evil.same, leftarg = text, rightarg = text);
		create domain evil.text as pg_catalog.text check (pg_temp.f(1));
		create domain evil.jsonb as pg_catalog.jsonb check (pg_temp.f(1));
		create domain pg_temp.text as pg_catalog.text check (pg_temp.f(1));
		create temporary table config (key pg_catalog.text, value pg_catalog.text);
		create temporary table pg_proc as select * from pg_catalog.pg_proc limit 0;
		create temporary table pg_class as select * from pg_catalog.pg_class limit 0;
		create temporary table pg_roles as select * from pg_catalog.pg_roles limit 0;
		create temporary table armed (id int);
		set search_path = pg_temp, evil, posthorn, pg_catalog`)
}

// standing lists all that an attack could change permanently: rights, owners, code
// and triggers of the schema, and memberships of roles.
func (s *session) standing() []string {
	s.t.Helper()
	return column[string](s, `
		select format('function %s of %s, definer %s, %s, %s, %s', p.oid::regprocedure, p.proowner::regrole, p.prosecdef, p.proconfig, p.proacl, md5(p.prosrc))
		from pg_proc p where p.pronamespace in ('posthorn'::regnamespace, 'public'::regnamespace) and p.proname !~ '^condition_[0-9]'
		union all
		select format('relation %s of %s, %s, %s, %s, row security %s', c.oid::regclass, c.relowner::regrole, c.relkind, c.relacl, c.reltriggers, c.relrowsecurity)
		from (select x.*, array(select format('%s %s %s', t.tgname, t.tgfoid::regprocedure, t.tgenabled) from pg_trigger t where t.tgrelid = x.oid order by t.tgname) as reltriggers from pg_class x) c
		where c.relnamespace in ('posthorn'::regnamespace, 'public'::regnamespace)
		union all
		select format('rule %s of %s', r.rulename, r.ev_class::regclass) from pg_rewrite r join pg_class c on c.oid = r.ev_class where c.relnamespace = 'posthorn'::regnamespace
		union all
		select format('schema %s of %s, %s', nspname, nspowner::regrole, nspacl) from pg_namespace where nspname in ('posthorn', 'public')
		union all
		select format('%s is in %s', m.member::regrole, m.roleid::regrole) from pg_auth_members m where m.member::regrole::text like '%' || current_database()
		union all
		select format('%s: %s%s%s%s', rolname, rolsuper, rolcreaterole, rolcreatedb, rolbypassrls) from pg_roles where rolname like '%' || current_database()
		order by 1`)
}

// isRefusal matches the SQLSTATEs for missing rights and invalid arguments.
var isRefusal = regexp.MustCompile(`^(42501|PH00[1245])$`)

// These statements are refused to each of our roles, even if other roles may run
// them.
var refusedToAll = []string{
	// to become another role
	"set role posthorn_condition", "set role {owner}", "set session authorization {owner}", "grant {owner} to {me}", "grant posthorn_condition to {me}",
	"alter role {me} superuser", "alter role {me} createrole", "create role {me}_too superuser", "alter role posthorn_condition login", "alter role {owner} password 'mine'",
	"reassign owned by {owner} to {me}", "drop owned by {owner} cascade", "alter database {database} owner to {me}",
	// to change Posthorn's objects
	"create or replace function posthorn.now() returns timestamptz language sql volatile parallel safe return clock_timestamp()",
	"create function posthorn.mine() returns int language sql as 'select 1'", "create table posthorn.mine (id int)", "create view posthorn.mine as select 1 as a", "create type posthorn.mine as enum ()",
	"create operator posthorn.=== (function = pg_temp.f, leftarg = text, rightarg = text)", "alter function pg_temp.f(int) set schema posthorn", "alter table evil.t set schema posthorn",
	"alter function posthorn.setting(pg_catalog.text) security invoker", "alter function posthorn.setting(pg_catalog.text) reset all", "alter function posthorn.publish_changes() owner to {me}", "drop function posthorn.now()",
	"alter schema posthorn owner to {me}", "drop schema posthorn cascade",
	"create trigger mine before insert on posthorn.events for each row execute function evil.trap()", "create trigger mine after insert on posthorn.config for each statement execute function evil.trap()",
	"alter table posthorn.events disable trigger all", "drop trigger check_config on posthorn.config", "create rule mine as on insert to posthorn.subscriptions do also select pg_temp.f(1)",
	"alter table posthorn.events add check (pg_temp.f(1))", "alter table posthorn.events alter key set default evil.now()::text", "alter table posthorn.api_tokens disable row level security", "create policy mine on posthorn.events using (pg_temp.f(1))",
	"create index mine on posthorn.events (id) where pg_temp.f(1)", "create table evil.child () inherits (posthorn.groups)", "alter table posthorn.events attach partition evil.events default", "create table evil.part partition of posthorn.events for values from ('1999-01-01') to ('1999-01-02')",
	"create table evil.refers (id int references posthorn.namespaces)", "create statistics mine on id, type from posthorn.groups", "create publication mine for table posthorn.events", "comment on table posthorn.events is 'mine'",
	"insert into posthorn.events (namespace_id, stream_id, type, payload) values (1, 1, 'a', '{}')", "insert into posthorn.schema_version select 1", "update posthorn.leases set until = until", "delete from posthorn.events", "truncate posthorn.events", "truncate posthorn.subscriptions cascade",
	"insert into posthorn.config values ('mine', '1', '')", "update posthorn.config set key = 'mine'", "delete from posthorn.config", "update posthorn.subscriptions set condition_id = 1", "insert into posthorn.condition_functions values ('pg_temp.f(int)')",
	"insert into posthorn.api_tokens (name) values ('mine')", "insert into posthorn.scheduled_tasks (namespace, name) values ('default', 'mine')", "delete from posthorn.stream_keys", "update posthorn.stream_policies set security_level = 'open'",
	"select nextval('posthorn.event_id')", "select setval('posthorn.event_id', 1)", "select nextval('posthorn.job_id')", "alter sequence posthorn.event_id restart with 1",
	"select 1; lock table posthorn.events in row share mode", "select 1; lock table posthorn.config in access exclusive mode", "select from posthorn.groups for update", "select from posthorn.events for key share",
	// Posthorn's functions for other roles
	"select posthorn.grant_role('admin', '{me}')", "select posthorn.allow_condition_function('evil.same(pg_catalog.text, pg_catalog.text)')", "select posthorn.condition_for('pg_temp.f(1)')", "select posthorn.compile(1, 'pg_temp.f(1)')",
	"select posthorn.make_condition_function('condition_1', 'select pg_temp.f(1)', '{}')", "select posthorn.give_to_condition_role('function', 'pg_temp.f(int)')", "select posthorn.run_matching('select pg_temp.f(1)', 1, '{}', null, null)",
	"select posthorn.row_as_json('public.vault')", "select posthorn.check_hook('evil.hook(jsonb)', 'evil.t')", "select posthorn.hold_ids()", "select posthorn.commit_relaxed()", "select posthorn.create_partition('1999-01-01', '1999-01-02')", "select posthorn.recompile_conditions()",
	// functions for triggers only, called by a trigger on a table of the role
	"create trigger mine before insert on pg_temp.armed for each row execute function posthorn.plan_scheduled_task()", "create trigger mine before insert on pg_temp.armed for each row execute function posthorn.prepare_subscription()",
	"create trigger mine before insert on pg_temp.armed for each row execute function posthorn.check_config()", "create trigger mine after delete on pg_temp.armed for each row execute function posthorn.follow_scheduled_task()",
	// table changes: of tables of other roles, by code of other roles
	"select posthorn.push_table_changes('public.vault')", "select posthorn.push_table_changes('posthorn.api_tokens')", "select posthorn.push_table_changes('pg_catalog.pg_authid')", "select posthorn.push_table_changes('posthorn.group_status')", "select posthorn.push_table_changes('armed')",
	"select posthorn.push_table_changes(null)", "select posthorn.push_table_changes('evil.t', hook => 'evil.hook(pg_catalog.jsonb)')", "select posthorn.push_table_changes('evil.t', hook => 'pg_catalog.to_jsonb(anyelement)')", "select posthorn.push_table_changes('evil.t', hook => 'posthorn.sealed_with(json)')",
	"select posthorn.make_push_trigger('public.vault', 'insert', 'vault_trap', '{}')", "select posthorn.make_push_trigger('posthorn.api_tokens', 'insert', 'mine', '{}')", "select posthorn.drop_push_trigger('posthorn.config', 'check_config')", "select posthorn.drop_push_trigger('public.vault', 'vault_trap')",
	"select posthorn.stop_table_changes('public.vault')", "select posthorn.push_table_changes('evil.t', stream => 'patients')", "select posthorn.push_table_changes('evil.t', stream => E'a\\nb')", "select posthorn.push_table_changes('evil.t', namespace => 'default''; select pg_temp.f(1)')",
	// texts that are parsed: conditions, patterns, cron expressions, periods,
	// settings, delays
	"select posthorn.subscribe('default', 'billing', 'a', '{\"conditions_sql\": \"pg_temp.f(1)\"}')", "select posthorn.subscribe('default', 'billing', 'a', '{\"conditions_sql\": \"evil.same(e.key, e.type)\"}')", "select posthorn.subscribe('default', 'billing', 'a', '{\"conditions_sql\": \"e.key operator(evil.=) e.type\"}')",
	"select posthorn.subscribe('default', 'billing', 'a', '{\"conditions_sql\": \"e.key::evil.text is null\"}')", "select posthorn.subscribe('default', 'billing', 'a', '{\"conditions_sql\": \"(e.key = $$a$$) is null; select pg_temp.f(1)\"}')", "select posthorn.subscribe('default', 'billing', 'a', '{\"conditions_sql\": \"exists (select from public.vault)\"}')",
	"select posthorn.subscribe('default', 'billing', 'a', '{\"conditions_sql\": \"lo_import(e.key) > 0\"}')", "select posthorn.subscribe('default', 'billing', 'a', '{\"conditions_sql\": \"pg_read_file(e.key) = e.type\"}')", "select posthorn.subscribe('default', 'billing', 'a', '{\"conditions_sql\": \"pg_notify(e.key, e.type) is null\"}')",
	"select posthorn.subscribe('default', 'billing', 'a', '{\"conditions_sql\": \"pg_advisory_lock(1886350440, 1) is null\"}')", "select posthorn.subscribe('default', 'billing', 'a', '{\"conditions_sql\": \"true\", \"params\": 1, \"evil\": 2}')", "select posthorn.subscribe_with_sql('default', 'billing', 'a', '{\"conditions_sql\": \"''1''::evil.text is null\"}')",
	"insert into posthorn.subscriptions (group_id, conditions_sql) values ('billing', 'pg_temp.f(1)')", "insert into posthorn.subscriptions (group_id, conditions_sql) values ('billing', 's.params @> jsonb_build_object(''a'', e.key::evil.text)')", "insert into posthorn.subscriptions (group_id, conditions_sql) values ('billing', 's.params @> jsonb_build_object(evil.same(e.key, ''a'')::text, 1)')",
	"select posthorn.schedule('default', 'mine', '@every pg_temp.f(1)', 'a')", "select posthorn.schedule('default', 'mine', '@at (select pg_temp.f(1))', 'a')", "select posthorn.schedule('default', 'mine', '* * * * *; select 1', 'a')", "select posthorn.schedule('default', 'mine', '@daily', 'a', timezone => '../../../../etc/passwd')",
	"select posthorn.schedule('default', 'mine', '@daily', 'a', catch_up => 'all'' or true')", "select posthorn.schedule('default', 'mine', '@daily', 'a', '{\"plain\": 1}', stream => 'patients')", "select posthorn.next_runs('pg_temp.f(1)')",
	"update posthorn.config set value = 'pg_temp.f(1)' where key = 'partition_interval'", "update posthorn.config set value = '1); select pg_temp.f(1)' where key = 'poll_chunk_size'", "update posthorn.config set value = '1 day''; select 1; --' where key = 'retention_hard_limit'",
	"select posthorn.define_group('default', 'mine', '{\"delays\": [\"1 second''; select pg_temp.f(1)\"]}')", "select posthorn.redrive('default', 'billing', '{\"type\": \"a\", \"evil\": \"1\"}')", "select posthorn.read_events('default', 'pg_temp.f(1)')",
	"select posthorn.set_group_cursor('billing', 'pg_temp.f(1)', true)", "select posthorn.register_node('default', '')", "select posthorn.set_stream_policy('default', 'patients', 'confidential', kms_key_id => 'awskms://mine')",
	"select posthorn.use_pg_cron()", "select posthorn.restore_events('{default}', '{default}', '{9}', '{1}', '{a}', '{null}', '{\"{}\"}', '{\"{}\"}', '{\"{}\"}', array[now()])",
	// plain text instead of sealed text
	"select posthorn.publish('default', 'a', '{\"plain\": 1}', stream => 'patients')", "select posthorn.publish('default', 'a', '{\"posthorn_sealed\": \"!\"}', stream => 'patients')", "select posthorn.publish_many('default', '[{\"type\": \"a\", \"stream\": \"patients\", \"payload\": 1}]')",
	// to read tables of other roles, and files
	"select * from public.vault", "select * from pg_catalog.pg_authid", "copy public.vault to stdout", "copy posthorn.api_tokens to program 'cat'", "copy evil.t from '/etc/passwd'", "copy evil.t from program 'id'", "select pg_read_file('/etc/passwd')", "select lo_import('/etc/passwd')", "select pg_ls_dir('/')",
	"select pg_terminate_backend({pid})", "select pg_cancel_backend({pid})", "alter system set max_connections = 1", "set session_replication_role = replica", "load 'auto_explain'",
}

// These statements are refused to one of our roles.
var refusedTo = map[string][]string{
	"posthorn_publisher": {
		"set role posthorn_consumer", "set role posthorn_admin", "select * from posthorn.events", "select * from posthorn.outbox_event", "insert into posthorn.outbox_event (id) values (7)", "select * from posthorn.jobs", "select * from posthorn.dead_letters", "select * from posthorn.streams", "select last_value from posthorn.event_id",
		"select * from posthorn.read_events('default', null)", "select posthorn.claim('default', 'billing', 'me')", "select posthorn.list_jobs('default')", "select posthorn.claim_jobs('default', 'me', '{a}', 1)", "select posthorn.tend()", "select posthorn.read_next_events('billing', null, 1, true)",
	},
	"posthorn_consumer": {
		"set role posthorn_publisher", "set role posthorn_admin", "select posthorn.publish('default', 'a')", "insert into posthorn.outbox_event (stream_name, event_type, payload) values ('default', 'a', '{}')", "select posthorn.enqueue('default', 'a')", "select * from posthorn.dead_letters", "select posthorn.list_dead_letters('default')", "select posthorn.purge('default', 'billing')", "select posthorn.seek('default', 'billing', now())",
		"delete from posthorn.subscriptions", "insert into posthorn.subscriptions (group_id) values ('billing')", "select posthorn.set_stream_policy('default', 'payroll', 'open')", "select posthorn.shred_stream_keys('default', 'patients')",
	},
	"posthorn_admin": {"insert into posthorn.stream_names (namespace, name) values ('default', 'mine')", "select posthorn.create_token('mine', 'short', 'ph_', '{root}')"},
}

// Secrets are readable by admins only. None of them suffices to log in, or to open a
// sealed payload.
var secrets = []string{"select hash from posthorn.api_tokens", "select key from posthorn.stream_keys", "select payload from posthorn.dead_letters", "select payload from posthorn.scheduled_tasks", "select posthorn.list_tokens()", "select posthorn.find_token('\\x00')", "select value from posthorn.config"}

// These statements may succeed. Code of the hostile role that they call runs as that
// role, and they change nothing that standing lists.
var harmlessToAll = []string{
	"select posthorn.publish('default', 'a', '{\"a\": 1}'::pg_catalog.json)", "select posthorn.publish('default'::evil.text, 'a'::evil.text)", "select posthorn.publish('default', 'a', '{}'::evil.jsonb)",
	"insert into posthorn.outbox_event (stream_name, event_type, payload) values ('default'::evil.text, 'a'::evil.text, '{}'::evil.jsonb)", "insert into posthorn.outbox_event (stream_name, event_type, payload) values ('patients', 'a', '{\"a\": \"secret\"}')", "select posthorn.publish('default', 'glad'::evil.mood)", "select posthorn.publish_many('default', '[{\"type\": \"a\"}]'::evil.jsonb)",
	"select posthorn.enqueue('default', 'a'::evil.text, '{}'::evil.jsonb, '{a}')", "select posthorn.register_node('default', 'a''; select pg_temp.f(1); --', metadata => '{}'::evil.jsonb)", "select posthorn.append_event_log('default', 'a', '{}', 'n')", "select posthorn.publish('default', 'a', deliver_at => evil.now())",
	"select posthorn.tend()", "select posthorn.define_group('default', 'a\"; select pg_temp.f(1); --')", "select posthorn.claim('default', 'billing', 'w'::evil.text)", "select posthorn.subscribe('default', 'other', 'a', '{\"type\": \"a\", \"payload\": {\"a\": 1}}'::evil.jsonb)", "select posthorn.publish('default', 'a')", "select posthorn.claim('default', 'other', 'w')",
	"select posthorn.read_events('default', posthorn.cursor_at('-infinity'))", "select posthorn.search_events('default', '{\"type\": \"a\"}')", "select * from posthorn.group_status", "select * from posthorn.table_changes", "select * from posthorn.partitions", "select * from posthorn.outbox_event", "select * from posthorn.schedules",
	"select posthorn.maintain_events_table()", "select posthorn.maintain_job_tables()", "select posthorn.fire_schedules()", "select posthorn.run_schedule_now('default', 'nightly')", "select posthorn.run_scheduled_task(t.task_id) from posthorn.scheduled_tasks t", "select posthorn.schedule('default', 'x''; select pg_temp.f(1)', '@daily', 'a', '{\"a\": \"$$\"}')",
	"update posthorn.config set value = value::evil.text where key = 'dedup_period'", "insert into posthorn.subscriptions (group_id, params) values ('another', '{\"type\": \"a\"}'::evil.jsonb)", "insert into posthorn.subscriptions (group_id, conditions_sql) values ('another', 'e.type = ''a'' and e.key is null')", "select posthorn.claim('default', 'another', 'w')", "select posthorn.redrive('default', 'billing', '{}'::evil.jsonb)",
	"select posthorn.push_table_changes('evil.moods'); insert into evil.moods values (1, 'glad', '{glad}', 'glad'); update evil.moods set m = null; delete from evil.moods", "select posthorn.push_table_changes('evil.t'); insert into evil.t values (1, 'a')", "select posthorn.push_table_changes('evil.events'); insert into evil.events values (1)", "select posthorn.stop_table_changes('evil.t')",
	"select posthorn.push_table_changes('evil.named'); insert into evil.named values ('glad', 1, 'a'); update evil.named set \"%s %1$I\" = 2",
	"create trigger by_hand after insert on armed referencing new table as posthorn_new_rows for each statement execute function posthorn.publish_changes('{\"namespace\": \"default\", \"stream\": \"default\", \"hook\": \"evil.hook(jsonb)\"}'); insert into armed values (1)", "drop trigger by_hand on armed; select posthorn.make_push_trigger('armed', 'insert', 'x\" after insert on public.vault; --', '{\"hook\": \"evil.hook(jsonb)\"}'); insert into armed values (1)",
	"alter table evil.t enable row level security; create policy p on evil.t using (pg_temp.f(1)); insert into evil.t values (2, 'a')", "set standard_conforming_strings = off; select posthorn.publish('default', 'a', '{\"a\": 1}'::pg_catalog.json); select posthorn.publish('default', 'a', '{\"plain\": \"posthorn_sealed\"}'::pg_catalog.json, stream => 'patients')",
	"set array_nulls = off; set datestyle = 'SQL, DMY'; set timezone = 'Asia/Kolkata'; select posthorn.tend(); select posthorn.maintain_events_table(); select posthorn.schedule('default', 'again', '@daily', 'a')",
	"select posthorn.shred_stream_keys('default', 'none')", "select lo_create(0)", "grant create on schema posthorn to {me}", "grant all on all tables in schema posthorn to public", "listen posthorn; notify posthorn, 'not what is sent here'",
}

// attempted fills in the names in a statement.
func (s *session) attempted(hostile *session, sql string) string {
	s.t.Helper()
	return strings.NewReplacer("{me}", hostile.conn.Config().User, "{owner}", value[string](s, "select quote_ident(current_user)"),
		"{database}", hostile.conn.Config().Database, "{pid}", value[string](s, "select pg_backend_pid()::text")).Replace(sql)
}

// A login role with one of our roles gets nothing else: no rights of the owner, no
// secrets, and no possibility to change Posthorn's objects.
func TestHostileRolesGetNothingMore(t *testing.T) {
	t.Parallel()
	for _, role := range ourRoles {
		t.Run(role, func(t *testing.T) {
			t.Parallel()
			s := besieged(t)
			hostile, ranAs := s.hostile(role)
			s.arm(hostile)
			before, anyRan := s.standing(), false
			attempt := func(sql string) (code string) {
				_, err := hostile.conn.Exec(t.Context(), s.attempted(hostile, sql))
				for _, ran := range ranAs() {
					anyRan = true
					if ran != hostile.conn.Config().User && ran != "posthorn_condition" {
						t.Errorf("%s: the code of %s ran as %s", sql, role, ran)
					}
				}
				pgErr, _ := errors.AsType[*pgconn.PgError](err)
				switch {
				case err == nil:
					return "success"
				case pgErr == nil:
					t.Fatalf("%s: %v", sql, err)
				}
				return pgErr.Code
			}
			all := slices.Concat(refusedToAll, refusedTo[role])
			if role != "posthorn_admin" {
				all = append(all, secrets...)
			}
			for _, sql := range all {
				if code := attempt(sql); !isRefusal.MatchString(code) {
					t.Errorf("%s: %s, want it refused", sql, code)
				}
			}
			for _, sql := range harmlessToAll {
				attempt(sql)
			}
			if !anyRan {
				t.Error("no code of the hostile role was called: this tests nothing")
			}
			equal(t, "rights, code and triggers", s.standing(), before)
			equal(t, "plain text in a confidential stream", value[int](s, `select count(*) from posthorn.events e
				where e.stream_id = (select id from posthorn.streams where name = 'patients') and e.payload::text !~ '"posthorn_sealed"'`), 0)
			equal(t, "secrets in the log", value[int](s, "select count(*) from posthorn.events e where to_jsonb(e)::text ~ 'secret'"), 0)
		})
	}
}

// Our roles write to no table and no sequence, except for the settings and
// subscriptions of admins, and for the view whose inserts publish. None of our functions that run as the owner of the schema
// uses the caller's search path to find names.
func TestRightsOfRoles(t *testing.T) {
	t.Parallel()
	s := database(t)
	equal(t, "rights on tables", column[string](s, `
		select format('%s: %s %s', r, p, c.relname)
		from unnest($1::text[]) r, unnest(array['insert', 'update', 'delete', 'truncate', 'references', 'trigger']) p, pg_class c
		where c.relnamespace = 'posthorn'::regnamespace and c.relkind in ('r', 'p', 'v') and has_table_privilege(r, c.oid, p)`, ourRoles),
		[]string{"posthorn_admin: delete former_names", "posthorn_admin: delete subscriptions"})
	equal(t, "rights on columns", column[string](s, `
		select format('%s: %s %s (%s)', r, p, c.relname, string_agg(a.attname, ', ' order by a.attname))
		from unnest($1::text[]) r, unnest(array['insert', 'update', 'references']) p, pg_class c join pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
		where c.relnamespace = 'posthorn'::regnamespace and c.relkind in ('r', 'p', 'v') and has_column_privilege(r, c.oid, a.attnum, p)
		group by r, p, c.relname order by 1`, ourRoles),
		[]string{
			"posthorn_admin: insert outbox_event (event_type, metadata, namespace, payload, stream_name)",
			"posthorn_admin: insert subscriptions (conditions_sql, expiry_interval, group_id, name, namespace, params)",
			"posthorn_admin: update config (value)",
			"posthorn_admin: update subscriptions (conditions_sql, error, expiry_interval, params, stopped_at)",
			"posthorn_publisher: insert outbox_event (event_type, metadata, namespace, payload, stream_name)",
		})
	equal(t, "sequences", column[string](s, `select format('%s: %s', r, c.relname) from unnest($1::text[]) r, pg_class c
		where c.relnamespace = 'posthorn'::regnamespace and c.relkind = 'S' and has_sequence_privilege(r, c.oid, 'usage, update')`, ourRoles), []string{})
	equal(t, "roles that create in the schema", column[string](s, "select r from unnest($1::text[]) r where has_schema_privilege(r, 'posthorn', 'create')", ourRoles), []string{})
	// publish is the exception, for its speed: it names the schema of each function,
	// operator and type.
	equal(t, "functions that use the search path of the caller", column[string](s, `select p.proname::text from pg_proc p
		where p.pronamespace = 'posthorn'::regnamespace and p.prosecdef and array_to_string(p.proconfig, ' ') !~ 'search_path=pg_catalog, pg_temp' is not false`), []string{"publish"})
	equal(t, "functions that take values of any type", column[string](s, `select p.proname::text from pg_proc p
		where p.pronamespace = 'posthorn'::regnamespace and p.proargtypes::oid[] && array(select t.oid from pg_type t where t.typtype = 'p')`), []string{})
}

// No right of Postgres prevents a session from taking an advisory lock, and so from
// stopping claims and upkeep. Neither publishing nor jobs stop, and the rest
// continues when that session has ended.
func TestHostileLocksStopNoPublishing(t *testing.T) {
	t.Parallel()
	s := besieged(t)
	id := value[int64](s, "select g.id from posthorn.groups g where g.name = $1", group)
	hostile, _ := s.hostile("posthorn_publisher")
	hostile.exec(`select pg_catalog.pg_advisory_lock(class, key) from pg_catalog.generate_series(1886350440, 1886350447) class
		cross join (select 0 as key union all select $1::int union all select pg_catalog.hashtext(part)
			from pg_catalog.unnest(array['maintain_events_table', 'tick', 'expire_jobs', 'catch_up', 'sweep']) part) k`, id)
	s.exec("set lock_timeout = '100ms'")
	event := s.publish()
	s.refused("55P03", "select * from posthorn.claim('default', $1, 'w', 1)", group)
	equal(t, "upkeep", value[string](s, "select posthorn.tend()->>'sweep'"), "busy")
	equal(t, "partitions", value[string](s, "select action from posthorn.maintain_events_table()"), "postponed")
	job := s.job("{a}")
	equal(t, "jobs", s.claimJobs("w", "{a}", 1), []int64{job})
	s.exec("select pg_terminate_backend($1)", hostile.pid())
	s.await("select not exists (select from pg_locks where locktype = 'advisory' and pid = $1)", hostile.pid())
	equal(t, "claimed", s.claim(1).Events, []int64{event})
}
