package guarantee

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthorn/posthorn/schema"
)

// objects lists the objects that a refused condition might leave behind.
func (s *session) objects() []string {
	s.t.Helper()
	return column[string](s, `
		select format('%s %s', p.oid::regprocedure, p.proowner::regrole) from pg_proc p where p.pronamespace not in ('pg_catalog'::regnamespace, 'information_schema'::regnamespace)
		union all
		select format('%s %s', c.oid::regclass, c.relkind) from pg_class c where c.relnamespace not in ('pg_catalog'::regnamespace, 'information_schema'::regnamespace, 'pg_toast'::regnamespace)
		union all
		select sql from posthorn.conditions
		union all
		select format('%s of %s', name, group_id) from posthorn.subscriptions
		union all
		select format('%s %s', nspname, nspacl) from pg_namespace where nspname = 'posthorn'
		order by 1`)
}

// A text that is not an expression over e and s is refused, and leaves nothing
// behind.
//
// seed 001.22
func TestBadConditionsAreRefused(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.exec(`create table public.canary as select 1 as alive;
		create function public.volatile_one() returns int as 'select 1' language sql volatile;
		create function public.rows() returns setof boolean as 'select true' language sql stable;
		create function public.raises() returns boolean language plpgsql stable as 'begin raise exception ''boom''; end';
		create sequence public.numbers`)
	before := s.objects()
	for _, condition := range []string{
		// no expression, or none of type boolean
		"", " ", "e.", "e.type =", "e.nothing = 1", "x.type = 'a'", "e.type", "1", "null", "'true'::text", "e", "s.params", "e.type = 1",
		"true, true", "*", "e.*", "select true", "$1", "$1 is null", ":x",
		// more than an expression over e and s
		"(select true)", "exists (select from posthorn.events)", "e.id = (select max(id) from posthorn.events)",
		"e.type in (select name from posthorn.streams)", "true = any (array(select true))", "s.id in (values (1))",
		"(with x as (select 1) select true from x)", "e.id = count(*)", "count(*) > 0", "max(e.id) > 1", "bool_and(true)",
		"row_number() over () = 1", "lag(true) over ()", "public.rows()", "unnest(array[true])", "generate_series(1, 2) = 1",
		"(jsonb_each(e.payload)).key = 'a'", "jsonb_array_elements(e.payload) = '1'", "grouping(e.id) = 0",
		// functions that may have effects
		"random() < 0.5", "clock_timestamp() > e.created_at", "nextval('public.numbers') > 0", "pg_sleep(1) is null",
		"set_config('search_path', 'public', false) = ''", "pg_advisory_lock(1) is null", "pg_try_advisory_xact_lock(1)",
		"query_to_xml('select 1', true, true, '') is null", "pg_terminate_backend(1)", "public.volatile_one() = 1",
		"lo_create(0) > 0", "pg_notify('a', 'b') is null", "e.id + public.volatile_one() = 2", "not (e.id > 0 and random() > 0)",
		"posthorn.publish('default', 'e') > 0", "posthorn.setting('partition_interval') = ''", "pg_read_file('/etc/passwd') = ''",
		// injection
		"true) union select (true", "true) as matches union all select (true", "true) as matches from pg_authid a, posthorn.subscriptions s where (true",
		"true) from pg_authid --", "true) --", "true) /*", "/*", "*/", "e.type = 'a' --\n) as b, (true", "true; drop table public.canary", "true); drop table public.canary; select (true",
		"e; drop table public.canary", ");", "(", ")", "true))", "((true)", "true) as matches, (true", "true) limit (1", "true) order by (1", "true) group by (true",
		"true) for update of s; select (true", "$$; drop table public.canary; $$", "$a$", "'", "\"", "'; drop table public.canary; --", "U&'\\0027'", "E'\\'", "E'\\'; drop table public.canary; --'",
		"true) into temporary x from (select true", "true) except (select true", "1) = any (select 1", "true) is true or exists (select 1 from public.canary",
		// fails for an empty event, or always
		"1 / 0 = 1", "public.raises()", "e.type::int > 0 or 1 / coalesce(e.id, 0) = 1", "coalesce(e.key, 'x')::int = 1", "jsonb_build_object(e.key, 1) = '{}'", "jsonb_build_object('a') = '{}'",
		"'a'::int = 1", "cast('{' as jsonb) is null",
		// too long
		"e.type = '" + strings.Repeat("x", 10000) + "'",
	} {
		_, err := s.conn.Exec(t.Context(), "select posthorn.subscribe('default', $1, 'a', $2::text::jsonb)", group, conditionFilter(condition, "{}"))
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "PH004" || pgErr.Hint == "" {
			t.Errorf("%s: %v, want PH004 and a hint", condition, err)
		}
	}
	equal(t, "objects", s.objects(), before)
	equal(t, "canaries", value[int](s, "select count(*) from public.canary"), 1)
	equal(t, "sequence used", value[bool](s, "select is_called from public.numbers"), false)
}

// escapes are texts that run code if they are cut into tokens in another way than Postgres does.
func escapes() (all []string) {
	code := func(name string) string {
		return ") as matches from unnest(null::posthorn.event[]) e, posthorn.subscriptions s; prepare " + name + " as select 1; select (true --'"
	}
	// Behind E'' the next literal is read as E'' too, over the end of a line.
	for i, between := range []string{"\n", "\r", "\r\n", " \t\f\n\f ", " -- a comment\n", "\n-- a comment\r -- another\n", "\n\v", "\n'a'\n", "\n/**/ ", " "} {
		all = append(all, "e.type = E'x'"+between+"'\\''"+code(fmt.Sprintf("upper_%d", i)), "e.type = 'a' || e''"+between+"'\\''"+code(fmt.Sprintf("lower_%d", i)))
	}
	return append(all,
		// The dollar sign ends a number, and no identifier.
		"e.id = 1e5$$ ' $$::int"+code("number"), "e.id = 1.e5$a$ ' $a$::int"+code("decimal"), "e.id = 0x1f$$ ' $$::int"+code("hexadecimal"),
		"e.type = E'\\' || '"+code("open"), "e.type = 'x' /* /* ' */ ' */"+code("comment"), "e.type = U&'x' uescape '\\'"+code("escape"),
		"true"+code("semicolon"))
}

// No code of a condition runs while it is checked. What a session keeps when a transaction is undone, such as a prepared
// statement, would be there for the next caller.
func TestCodeInConditionsIsNotRun(t *testing.T) {
	t.Parallel()
	for _, walls := range []struct{ name, without string }{
		{"both", ""},
		{"one statement", "create or replace function posthorn.is_enclosed(sql text) returns boolean language sql as 'select true'; create or replace function posthorn.joins_literals(tokens text[]) returns boolean language sql as 'select false'"},
	} {
		t.Run(walls.name, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.define("{}")
			s.exec(walls.without)
			before := s.objects()
			for _, condition := range escapes() {
				_, err := s.conn.Exec(t.Context(), "select posthorn.subscribe('default', $1, 'a', $2::text::jsonb)", group, conditionFilter(condition, "{}"))
				if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "PH004" {
					t.Errorf("%q: %v, want PH004", condition, err)
				}
			}
			equal(t, "objects", s.objects(), before)
			s.exec("insert into posthorn.conditions (digest, sql) select convert_to(x, 'UTF8'), x from unnest($1::text[]) x", escapes())
			s.exec("select posthorn.recompile_conditions()") // as an upgrade does
			equal(t, "statements of conditions", column[string](s, "select name from pg_prepared_statements where not name ^@ 'stmtcache_'"), []string{})
		})
	}
}

// A condition is cut into tokens as Postgres does it, and is refused where that is not sure.
func TestConditionsAreCutIntoTokens(t *testing.T) {
	t.Parallel()
	s := database(t)
	for _, condition := range escapes() {
		if value[bool](s, "select posthorn.is_enclosed($1)", condition) {
			t.Errorf("%q is taken for one expression", condition)
		}
	}
	for _, condition := range []string{
		"e.id = 1\v", "e.id = 1\x01", "e.type = E'\\'", "e.id = 1$1", "e.a /*", "\\", "'x' 'y'", "'x' /* */ 'y'", "'x'\n'y'",
		"N'x'\n'\\''", "U&'x'\n'\\''", "B'1'\n'0'", "x'1f'\n'0'", "'x' -- y\n'z'",
	} {
		if value[bool](s, "select posthorn.is_enclosed($1)", condition) {
			t.Errorf("%q is taken for one expression", condition)
		}
	}
	for _, condition := range []string{
		"e.type = 'order.placed'", "e.type in ('a', 'b')\nand e.key = E'it\\'s' -- why", "e.type = 'it''s' or e.type = E'a''b'", "/* * / */ e.id > 1.5e-3",
		"(e.tags)[1] = 'x'", "e.payload->>'a' ~ '^a[^b]|c$' and e.payload @> '{\"a\": 1}'", "e.type = U&'\\0041'", "e.\"type\" = 'a'", "date'2026-01-01' < e.created_at",
		"public.größe(e.id) % 2 <> -1 and e.id*2/3 >= .5", "e.a$b = 1", "e.type = \"a'b\"", "x => 1::bigint",
	} {
		if !value[bool](s, "select posthorn.is_enclosed($1)", condition) {
			t.Errorf("%q is refused", condition)
		}
	}
	err := s.refused("PH004", "select posthorn.subscribe('default', $1, 'a', $2::text::jsonb)", group, conditionFilter("e.type = E'x'\n'y'", "{}"))
	if !strings.Contains(err.Message, "join them with ||") {
		t.Errorf("the error says nothing that helps: %s", err.Message)
	}
	// The message of Postgres would show the literal.
	err = s.refused("PH004", "select posthorn.subscribe('default', $1, 'a', $2::text::jsonb)", group, conditionFilter("e.id = ('se' || 'cret')::int or 'x'::int = 1", "{}"))
	if !strings.HasSuffix(err.Message, "a literal is no value of its type") {
		t.Errorf("the error shows values: %s", err.Message)
	}
	// Of other errors the code alone is shown: here of too many arguments.
	err = s.refused("PH004", "select posthorn.subscribe('default', $1, 'a', $2::text::jsonb)", group, conditionFilter("num_nulls("+strings.Repeat("1, ", 100)+"1) = 0", "{}"))
	if !strings.HasSuffix(err.Message, "cannot be read (SQLSTATE 54023)") {
		t.Errorf("the error has no code: %s", err.Message)
	}
}

// Only admins may make conditions.
func TestOnlyAdminsMakeConditions(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.exec("set role posthorn_consumer")
	s.subscribe("filter", "{}")
	if err := s.refused("PH005", "select posthorn.subscribe('default', $1, 'a', '{\"conditions_sql\": \"true\"}')", group); err.Hint == "" {
		t.Error("no hint")
	}
	s.refused("42501", "select posthorn.subscribe_with_sql('default', $1, 'a', '{\"conditions_sql\": \"true\"}')", group)
	s.refused("42501", seedInsert)
	s.refused("42501", "update posthorn.subscriptions set conditions_sql = 'true'")
	s.refused("42501", "delete from posthorn.subscriptions")
	s.refused("42501", "select posthorn.condition_for('true')")
	equal(t, "seen", column[string](s, "select name from posthorn.subscriptions"), []string{"filter"})
	s.exec("select posthorn.unsubscribe('default', $1, 'filter')", group)

	s.exec("reset role; set role posthorn_publisher")
	s.refused("42501", "select posthorn.subscribe('default', $1, 'a')", group)

	s.exec("reset role; set role posthorn_admin")
	s.exec(seedInsert)
	s.subscribeSQL("a", "e.type = 'order.placed'", "{}")
	s.exec("update posthorn.subscriptions set params = '{\"topic\": \"order.placed\"}' where group_id = 'my-unique-group-id'")
	s.exec("update posthorn.subscriptions set conditions_sql = null, params = '{}' where name = 'a'")
	// Admins may not change the engine's own columns.
	s.refused("42501", "update posthorn.subscriptions set condition_id = 1")
	s.refused("42501", "update posthorn.subscriptions set digest = ''")
	event := s.publish()
	s.wantHanded(to(event, "a"))
	s.exec("delete from posthorn.subscriptions where name = 'a'")
	compiled := value[string](s, "select proname from pg_proc where proname ~ '^condition_[0-9]+$' limit 1")
	s.refused("42501", "select posthorn."+compiled+"(1, null::posthorn.event[], null::bigint[], null::timestamptz)")
	s.refused("42501", "select posthorn.compile(1, 'true')")
}

// Code that a condition runs may read subscriptions and nothing else, whoever made
// the condition, and including immutable functions that run during planning.
func TestConditionsRunAsARoleThatMayNothing(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.exec(`create table public.secrets as select 'secret' as secret;
		create sequence public.leaked;
		create function public.peek() returns text language plpgsql stable as 'begin return (select secret from public.secrets); end';
		create function public.peek_careful() returns boolean language plpgsql stable as $$
		begin
			return (select secret from public.secrets) is not null;
		exception when insufficient_privilege then
			return false;
		end $$;
		create function public.who() returns text language sql stable as 'select current_user::text';
		create function public.leak() returns text language plpgsql immutable as $$
		begin
			perform nextval('public.leaked');
			return 'a';
		exception when insufficient_privilege then
			return 'b';
		end $$`)
	s.exec("select posthorn.allow_condition_function(p.oid) from pg_proc p where p.pronamespace = 'public'::regnamespace and p.proname <> 'raises'")
	s.refused("PH004", "select posthorn.subscribe('default', $1, 'peek', $2::text::jsonb)", group, conditionFilter("public.peek() is not null", "{}"))
	s.subscribeSQL("careful", "public.peek_careful()", "{}")
	s.subscribeSQL("who", "public.who() = 'posthorn_condition'", "{}")
	s.subscribeSQL("folded", "public.leak() = 'a' or e.type = 'never'", "{}")
	s.subscribeSQL("other", "s.params @> jsonb_build_object('x', public.leak())", `{"x": "a"}`)
	event := s.publish()
	s.wantHanded(to(event, "who"))
	equal(t, "stopped", s.stopped(), []string{})
	equal(t, "ran with other rights", value[bool](s, "select is_called from public.leaked"), false)

	equal(t, "owners of compiled functions", column[string](s, `
		select distinct p.proowner::regrole::text || ' ' || p.prosecdef from pg_proc p
		where p.pronamespace = 'posthorn'::regnamespace and p.proname ~ '^condition_[0-9]'`), []string{"posthorn_condition true"})
	equal(t, "called by everyone", column[string](s, `
		select p.oid::regprocedure::text from pg_proc p
		where p.pronamespace = 'posthorn'::regnamespace and p.proname ~ '^condition_[0-9]'
			and (has_function_privilege('posthorn_admin', p.oid, 'execute') or has_function_privilege('posthorn_consumer', p.oid, 'execute'))`), []string{})
	equal(t, "readable tables", column[string](s, `
		select distinct c.oid::regclass::text from pg_class c, unnest(array['select', 'insert', 'update', 'delete', 'truncate']) p
		where c.relnamespace = 'posthorn'::regnamespace and c.relkind in ('r', 'p', 'v') and has_table_privilege('posthorn_condition', c.oid, p)`), []string{"posthorn.subscriptions"})
	equal(t, "other rights on subscriptions", value[bool](s, "select has_table_privilege('posthorn_condition', 'posthorn.subscriptions', 'insert, update, delete')"), false)
	equal(t, "may create", value[bool](s, "select has_schema_privilege('posthorn_condition', 'posthorn', 'create')"), false)
	equal(t, "functions it may call", column[string](s, `
		select p.oid::regprocedure::text from pg_proc p
		where p.pronamespace = 'posthorn'::regnamespace and has_function_privilege('posthorn_condition', p.oid, 'execute') and p.proname !~ '^condition_[0-9]'`), []string{})
}

// asOwner creates a database that belongs to a new role without a superuser's rights,
// installs Posthorn there, and returns a session of that role.
func (s *ownServer) asOwner(t *testing.T, name, attributes string) *session {
	t.Helper()
	d := s.newDatabase(t, "template0")
	d.session().exec(fmt.Sprintf("create role %s login password 'secret' %s; alter database %s owner to %[1]s", name, attributes, d.name))
	u, err := url.Parse(d.url())
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(name, "secret")
	owner := connect(t, u.String())
	if _, err := schema.Migrate(t.Context(), owner.conn, schema.Options{}); err != nil {
		t.Fatal(err)
	}
	return owner
}

func (s *session) wantConditions() {
	s.t.Helper()
	s.subscribeSQL("a", "s.params @> jsonb_build_object('topic', e.topic)", `{"topic": "order.placed"}`)
	event := s.publish()
	s.wantHanded(to(event, "a"))
	equal(s.t, "may create", value[bool](s, "select has_schema_privilege('posthorn_condition', 'posthorn', 'create')"), false)
}

// wantNoConditions checks that without the right to create roles only filters work,
// and that the error has a helpful hint.
func (s *session) wantNoConditions() {
	s.t.Helper()
	s.define("{}")
	s.subscribe("filter", `{"type": "order.*"}`)
	err := s.refused("PH005", "select posthorn.subscribe('default', $1, 'b', $2::text::jsonb)", group, conditionFilter("true", "{}"))
	if !strings.Contains(err.Hint, "As a superuser: create role posthorn_condition") || !strings.Contains(err.Hint, "or use a filter") {
		s.t.Errorf("the hint does not help: %q", err.Hint)
	}
	equal(s.t, "conditions left", value[int](s, "select count(*) from posthorn.conditions where sql is not null"), 0)
	event := s.publish()
	s.wantHanded(to(event, "filter"))
	s.exec("select posthorn.unsubscribe('default', $1, 'filter')", group)
}

// The owner of a database who may create roles can install Posthorn and use
// conditions without being a superuser. From Postgres 16 on, this requires having
// created the roles: in another database of the cluster, the hint names the missing
// right.
func conditionsWithoutSuperuser(t *testing.T, server *ownServer) {
	followHint := func(s *session) {
		super := connect(t, server.urlOf(t, s.conn.Config().Database))
		super.exec("do $$ begin create role posthorn_condition nologin; exception when duplicate_object then null; end $$")
		super.exec("grant posthorn_condition to " + s.conn.Config().User)
		super.exec("grant usage on schema posthorn to posthorn_condition; grant select on posthorn.subscriptions to posthorn_condition")
	}
	nobody := server.asOwner(t, "nobody", "")
	nobody.wantNoConditions()
	server.asOwner(t, "first", "createrole").wantConditions()
	nobody.wantNoConditions() // although the role exists now
	followHint(nobody)
	nobody.wantConditions()

	second := server.asOwner(t, "second", "createrole")
	if value[int](second, "select current_setting('server_version_num')::int") >= 160000 {
		second.wantNoConditions()
		followHint(second)
	}
	second.wantConditions()
}
