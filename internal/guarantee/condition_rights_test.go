package guarantee

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// dropping lets tests drop their roles one after the other: all databases of a server share its roles, and two such
// statements can wait for each other.
var dropping sync.Mutex

// hostile opens a session of a login role that has one of Posthorn's roles and
// nothing else. Its code records the role as which it runs, and tries to gain more
// rights, and to change the functions that evaluate conditions.
func (s *session) hostile(ours string) (hostile *session, ranAs func() []string) {
	s.t.Helper()
	role := "hostile_" + value[string](s, "select current_database()")
	// Each in a transaction of its own: roles are common to the databases of all tests, which could wait for each other.
	s.exec(fmt.Sprintf("create role %s login password 'secret'", role))
	s.exec(fmt.Sprintf("grant %s to %s", ours, role))
	s.t.Cleanup(func() {
		dropping.Lock()
		defer dropping.Unlock()
		for _, sql := range []string{"drop owned by %s cascade", "drop role %s"} {
			if _, err := s.conn.Exec(context.Background(), fmt.Sprintf(sql, role)); err != nil {
				s.t.Error(err)
			}
		}
	})
	u, err := url.Parse(s.conn.Config().ConnString())
	if err != nil {
		s.t.Fatal(err)
	}
	u.User = url.UserPassword(role, "secret")
	hostile = connect(s.t, u.String())
	var said []string
	hostile.notices(func(message string) {
		if role, ok := strings.CutPrefix(message, "ran as "); ok {
			said = append(said, role)
		}
	})
	hostile.exec(`
		create function pg_temp.f(int) returns boolean language plpgsql stable as $$
		declare
			mine record;
		begin
			raise notice 'ran as %', current_user;
			begin
				execute format('alter role %I superuser', session_user);
			exception when others then null;
			end;
			for mine in select p.oid::regprocedure as name from pg_catalog.pg_proc p where p.proowner = 'posthorn_condition'::regrole loop
				begin
					execute format('alter function %s security invoker', mine.name);
				exception when others then null;
				end;
			end loop;
			return true;
		end $$;
		create function pg_temp.f(text, text) returns boolean language sql as 'select pg_temp.f(1)';
		create operator pg_temp.=== (function = pg_temp.f, leftarg = text, rightarg = text);
		create domain pg_temp.d as int check (pg_temp.f(value));
		create type pg_temp.pair as (a pg_temp.d);
		create temporary table posing (a pg_temp.d)`)
	return hostile, func() []string {
		s.t.Helper()
		ran := said
		said = nil
		equal(s.t, "superuser", value[bool](s, "select rolsuper from pg_roles where rolname = $1", role), false)
		equal(s.t, "functions that run as their caller", column[string](s, `
			select p.oid::regprocedure::text from pg_proc p where p.pronamespace = 'posthorn'::regnamespace and p.proname ~ '^condition_[0-9]' and not p.prosecdef`), []string{})
		return ran
	}
}

// No text of a condition is read, planned or run with the rights of the schema's
// owner, whatever code an admin makes it call. Such code, which runs as
// posthorn_condition, cannot leave anything behind.
func TestConditionsGiveAdminsNoRights(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	admin, ranAs := s.hostile("posthorn_admin")
	admin.subscribeSQL("before", "e.type = 'order.placed'", "{}")
	schema := value[string](admin, "select nspname from pg_namespace where oid = pg_my_temp_schema()")
	before := s.objects()
	anyRan := false
	for _, condition := range []string{
		"'{1}'::%s.d[] is not null", "'{1}'::pg_temp.d[] is not null", "'{1}'::d[] is not null", "d '1' = 1", "'(1)'::%s.pair is not null", "posing '(1)' is not null",
		"'{(1)}'::pair[] is not null", "s.params @> jsonb_build_object('a', '{1}'::%s.d[])", "s.params @> jsonb_build_object('a', cast('{1}' as d[]), 'b', e.id)",
		"pg_temp.f(1)", "%s.f(1)", "f(1)", "e.type operator(pg_temp.===) 'a'", "1::pg_temp.d = 1", "(e.id::int)::d = 1",
		"e.type = any ('{1}'::pg_temp.d[]::text[])", "case when true then true else '{1}'::d[] is null end",
		"true) as matches; select pg_temp.f(1); select (true", "true) as matches from pg_temp.posing e, posthorn.subscriptions s where (pg_temp.f(1)",
	} {
		condition = strings.ReplaceAll(condition, "%s", schema)
		for _, statement := range []string{
			"select posthorn.subscribe('default', $1, 'a', json_build_object('conditions_sql', $2::text)::jsonb)",
			"insert into posthorn.subscriptions (group_id, conditions_sql) values ($1, $2)",
			"update posthorn.subscriptions set conditions_sql = $2 where group_id = $1",
		} {
			admin.refused("PH004", statement, group, condition)
			for _, role := range ranAs() {
				anyRan = true
				if role != "posthorn_condition" {
					t.Errorf("%s: the code of an admin ran as %s", condition, role)
				}
			}
		}
	}
	if !anyRan {
		t.Error("the parser called nothing: this tests nothing")
	}
	equal(t, "objects", s.objects(), before)
}

// Code that the parser of a condition calls may set the search_path for good. What the owner of
// the schema runs behind it names what it named before.
func TestConditionsLeaveTheSearchPath(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	admin, ranAs := s.hostile("posthorn_admin")
	admin.exec(`
		create function pg_temp.moves(int) returns boolean language plpgsql stable as $$
		begin
			perform pg_catalog.set_config('search_path', 'pg_temp, pg_catalog', false);
			raise notice 'ran as %', current_user;
			return true;
		end $$;
		create domain pg_temp.moving as int check (pg_temp.moves(value));
		create function pg_temp.spy() returns oid language plpgsql as $$
		begin
			raise notice 'ran as %', current_user;
			return 0;
		end $$;
		create temporary view pg_rewrite as select pg_temp.spy() as ev_class, null::pg_catalog.pg_node_tree as ev_action`)
	admin.refused("PH004", "select posthorn.subscribe('default', $1, 'a', json_build_object('conditions_sql', $2::text)::jsonb)", group, "'{1}'::pg_temp.moving[] is not null")
	ran := ranAs()
	if len(ran) == 0 {
		t.Error("the parser called nothing: this tests nothing")
	}
	for _, role := range ran {
		if role != "posthorn_condition" {
			t.Errorf("the code of an admin ran as %s", role)
		}
	}
}

// A condition has the same meaning in every session: settings that change how
// Postgres reads literals cannot turn a literal into code.
func TestConditionsDoNotDependOnTheSession(t *testing.T) {
	t.Parallel()
	s := database(t)
	admin, ranAs := s.hostile("posthorn_admin")
	admin.subscribeSQL("quoted", `e.key = '\'' or pg_temp.f(1) or e.key = '''`, "{}")
	admin.subscribeSQL("escaped", `e.key = E'\\\'' or e.type <> '\'`, "{}")
	admin.subscribeSQL("dated", `e.created_at > '2020-02-03' and (e.payload->>'day')::date = '2020-02-03'`, "{}")
	admin.exec("set standard_conforming_strings = off; set datestyle = 'SQL, DMY'; set timezone = 'Asia/Kolkata'; set quote_all_identifiers = on; set backslash_quote = on")
	admin.subscribeSQL("later", `e.created_at > '2020-02-03' and e.type <> '\' and e.payload->>'day' = '2020-02-03'`, "{}")
	event := s.publishEvent("a", `{"day": "2020-02-03"}`)
	equal(t, "handed out", admin.handOut(group, 10), []string{to(event, "dated", "escaped", "later")})
	equal(t, "ran", ranAs(), nil)
	equal(t, "dead letters", value[int](s, "select count(*) from posthorn.dead_letters"), 0)
}

// Functions that read, change, wait or amplify are refused by name, before they run.
func TestConditionsUseWhatIsAllowed(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.exec(`create function public.mine(text) returns boolean language sql immutable as 'select true';
		create domain public.word as text; create type public.colour as enum ('red'); create collation public.other from "C"`)
	before := s.objects()
	for condition, object := range map[string]string{
		"table_to_xml('posthorn.subscriptions', true, true, '') is null": "table_to_xml", "schema_to_xml('posthorn', true, true, '') is null": "schema_to_xml",
		"database_to_xml(true, true, '') is null": "database_to_xml", "query_to_xml('select 1', true, true, '') is null": "query_to_xml",
		"cursor_to_xml('c', 1, true, true, '') is null": "cursor_to_xml", "query_to_xml_and_xmlschema('select 1', true, true, '') is null": "query_to_xml_and_xmlschema",
		"table_to_xmlschema('posthorn.config', true, true, '') is null": "table_to_xmlschema", "xpath('/a', '<a/>') is null": "xpath", "xmlelement(name a, e.key) is null": "xmlexpr",
		"pg_read_file('/etc/passwd') = ''": "pg_read_file", "pg_ls_dir('/') is null": "pg_ls_dir", "pg_stat_file('/') is null": "pg_stat_file",
		"set_config('role', 'postgres', false) = ''": "set_config", "current_setting('data_directory') = ''": "current_setting", "version() = ''": "version",
		"lo_import('/etc/passwd') > 0": "lo_import", "lo_get(1) is null": "lo_get", "loread(1, 2) is null": "loread", "pg_notify('a', 'b') is null": "pg_notify",
		"pg_advisory_lock(1) is null": "pg_advisory_lock", "pg_try_advisory_lock(1)": "pg_try_advisory_lock", "nextval('posthorn.event_id') > 0": "nextval",
		"currval('posthorn.event_id') > 0": "currval", "pg_sequence_last_value('posthorn.event_id') > 0": "pg_sequence_last_value", "pg_sleep(1) is null": "pg_sleep",
		"pg_terminate_backend(1)": "pg_terminate_backend", "pg_get_viewdef('posthorn.event_log') = ''": "pg_get_viewdef", "obj_description(1, 'pg_class') = ''": "obj_description",
		"pg_relation_size('posthorn.events') > 0": "pg_relation_size", "has_table_privilege('posthorn.config', 'select')": "has_table_privilege", "pg_ts_config_is_visible(1)": "pg_ts_config_is_visible",
		"col_description(1, 1) = ''": "col_description", "to_regclass('posthorn.config') is null": "to_regclass", "pg_typeof(e.key) is null": "pg_typeof",
		"generate_series(1, 2) = 1": "generate_series", "unnest(e.tags) = 'a'": "unnest", "regexp_split_to_table(e.key, 'a') = 'a'": "regexp_split_to_table", "jsonb_array_elements(e.payload) = '1'": "jsonb_array_elements",
		"repeat(e.key, 1000000) = 'a'": "repeat", "lpad(e.key, 100000000) = 'a'": "lpad", "rpad(e.key, 100000000, 'x') = 'a'": "rpad", "replace(e.key, 'a', 'aa') = 'a'": "replace",
		"array_fill(1, array[1000000]) is null": "array_fill", "format('%1000000s', e.key) = 'a'": "format", "quote_literal(e.key) = 'a'": "quote_literal", "factorial(10000) > 1": "factorial", "power(9, 99999::numeric) > 1": "power", "9 ^ 9999::numeric > 1": "^(numeric,numeric)",
		"regexp_replace(e.key, '(a+)+', 'b') = 'a'": "regexp_replace", "regexp_match(e.key, 'a') is null": "regexp_match", "regexp_count(e.key, 'a') > 0": "regexp_count", "regexp_like(e.key, 'a')": "regexp_like", "substring(e.key from 'a') = 'a'": "substring",
		"e.key ~ '(a+)+$'": "~(text,text)", "e.key ~ '((a)\\2)*'": "~(text,text)", "e.key !~* e.type": "!~*(text,text)", "e.key ~ any (e.tags)": "~(text,text)", "e.key ~ 'a{50}b{50}'": "~(text,text)", "e.key ~ e.type": "~(text,text)", "e.key similar to 'a%'": "similar_to_escape",
		"e.key ~ '" + strings.Repeat("a", 101) + "'": "~(text,text)", "e.payload @? '$.a'": "jsonpath", "e.payload @@ '$.a == 1'": "jsonpath", "jsonb_path_exists(e.payload, '$.a')": "jsonb_path_exists", "to_tsvector(e.key) is null": "to_tsvector", "e.key @@ 'a'": "@@(text,text)", "jsonb_pretty(e.payload) = ''": "jsonb_pretty",
		"e.key::xml is null": "xml", "e.id::regclass is null": "oid", "'posthorn.config'::regclass is null": "regclass", "'sha256'::regproc is null": "regproc", "e.key::regrole is null": "regrole", "'a'::refcursor is null": "refcursor", "(s.ctid)::text = ''": "tid",
		"e.key::public.word = 'a'": "domain", "'red'::public.colour is null": "public.colour", "public.mine(e.key)": "public.mine", "e.key collate public.other = 'a'": "public.other",
		"now() > e.created_at": "now()", "current_user = 'a'": "current_user", "current_date > e.created_at": "current_date", "random() > 0.5": "random", "age(e.created_at) > '1 day'": "age(timestamp with time zone)", "gen_random_uuid() is null": "gen_random_uuid",
		"(select true)": "subquery", "exists (select from posthorn.config)": "subquery", "array(select 1) is null": "subquery", "count(*) > 0": "aggregate", "rank() over () = 1": "window",
		"jsonb_build_object('a', jsonb_build_object('a', jsonb_build_object('a', e.key)::text)::text)::text = ''": "more than twice",
	} {
		_, err := s.conn.Exec(t.Context(), "select posthorn.subscribe('default', $1, 'a', $2::text::jsonb)", group, conditionFilter(condition, "{}"))
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "PH004" || !strings.Contains(strings.ReplaceAll(pgErr.Message, condition, ""), object) {
			t.Errorf("%s: %v, want PH004 that names %s", condition, err, object)
		}
	}
	equal(t, "objects", s.objects(), before)
	for i, condition := range []string{
		"e.key ~ '^[A-Za-z_]+\\d{2,4}$|^x?\\.y' and e.key !~* 'abc'", "e.key like s.params->>'a' || '%' and e.key ilike 'A_'", "e.type in ('a', 'b') and 'x' = any (e.tags) and e.tags && array['a']",
		"case when e.payload->>'n' ~ '^[0-9]+$' then (e.payload->>'n')::int between 5 and 7 end", "coalesce(e.payload #>> '{a,b}', '') <> '' and (e.payload->'n')::numeric * 2 > round(1.5)",
		"extract(dow from e.created_at at time zone 'Europe/Berlin') in (0, 6)", "e.created_at + interval '1 day' > (e.payload->>'at')::timestamptz", "(e.type, e.key) in (('a', 'b'))",
		"upper(left(e.key, 2)) = 'DE' and position('a' in e.key) > 0 and split_part(e.key, '-', 1) = 'a'", "e.payload ?| array['a'] and e.payload @> '{\"a\": 1}' and jsonb_typeof(e.payload->'a') = 'number'",
		"/* a comment */ greatest(e.id, 5) % 50 = 0 -- and another", "(e.payload->>'ip')::inet << '10.0.0.0/8'", "num_nulls(e.key, e.type) = 0 and e is not null",
	} {
		s.subscribeSQL(fmt.Sprint(i), condition, "{}")
	}
	s.publish()
	s.handOut(group, 10)
	equal(t, "stopped", s.stopped(), []string{})
}

// The owner of the schema can allow conditions to call a function, and revoke that.
func TestAllowedConditionFunctions(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.allowFunction("region(k text) returns text", "begin return left(k, 2); end")
	s.exec("create function public.region(k text, n int) returns text language sql immutable as 'select left(k, n)'; create function public.clock() returns boolean language sql as 'select true'")
	s.subscribeSQL("de", "public.region(e.key) = 'de'", "{}")
	s.subscribeSQL("all", "e.type is not null", "{}")
	s.refused("PH004", "select posthorn.subscribe('default', $1, 'b', $2::text::jsonb)", group, conditionFilter("public.region(e.key, 2) = 'de'", "{}"))
	s.refused("PH004", "select posthorn.allow_condition_function('public.clock()')") // is volatile
	publish := func() int64 { return value[int64](s, "select posthorn.publish('default', 'a', key => 'de-7')") }
	s.wantHanded(to(publish(), "all", "de"))
	s.exec("set role posthorn_admin")
	s.refused("42501", "select posthorn.allow_condition_function('public.region(text, int)')")
	s.refused("42501", "insert into posthorn.condition_functions values ('public.region(text,integer)')")
	s.exec("reset role")

	s.exec("select posthorn.disallow_condition_function('public.region(text)')")
	if got := s.stopped(); len(got) != 1 || !strings.Contains(got[0], "de: condition 'public.region(e.key) = ''de''' calls public.region(text), which is not allowed") {
		t.Errorf("stopped: %q", got)
	}
	event := publish()
	s.wantHanded(to(event, "all"))
	s.refused("PH004", "select posthorn.subscribe('default', $1, 'de', $2::text::jsonb)", group, conditionFilter("public.region(e.key) = 'de'", "{}"))
	s.refused("PH001", "select posthorn.disallow_condition_function('public.region(text)')")
	s.exec("select posthorn.allow_condition_function('public.region(text)')")
	s.subscribeSQL("de", "public.region(e.key) = 'de'", "{}")
	s.wantHanded(to(event, "de"))
}
