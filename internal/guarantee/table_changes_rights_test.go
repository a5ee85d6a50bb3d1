package guarantee

import (
	"context"
	"testing"
)

// seed 001, table changes: the triggers run with the rights of Posthorn's owner, and
// no other role can use these rights.

// role makes a role for this test; roles belong to the cluster.
func (s *session) role(kind string, in ...string) string {
	s.t.Helper()
	name := value[string](s, "select $1 || '_' || current_database()", kind)
	s.exec("create role " + name)
	for _, group := range in {
		s.exec("grant " + group + " to " + name)
	}
	s.t.Cleanup(func() {
		_, _ = s.conn.Exec(context.Background(), "reset role; drop owned by "+name+"; drop role "+name)
	})
	return name
}

// shop makes an owner of tables who may push their changes, in a schema of its own.
func (s *session) shop() string {
	s.t.Helper()
	owner := s.role("shop", "posthorn_admin")
	s.exec("create schema shop authorization " + owner)
	s.exec("create table public.trace (who text); grant insert on public.trace to public; grant usage on schema public to public")
	s.exec("set role " + owner)
	s.exec("create table shop.t (id int primary key, v text)")
	return owner
}

// ran returns the roles as which foreign code ran.
func (s *session) ran() []string {
	s.t.Helper()
	s.exec("reset role")
	return column[string](s, "select distinct who from public.trace order by 1")
}

const evilHook = `language plpgsql as 'begin insert into public.trace values (current_user); return change; end'`

func TestWritersNeedNoRightToPublish(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.shop()
	s.exec("select posthorn.push_table_changes('shop.t')")
	s.exec("reset role")
	writer := s.role("writer")
	s.exec("grant usage on schema shop to " + writer + "; grant insert, select, update on shop.t to " + writer)
	s.exec("set role " + writer)
	s.exec("insert into shop.t values (1, 'a')")
	s.exec("update shop.t set v = 'b'")
	s.refused("42501", "select posthorn.publish('default', 'e')")
	s.refused("42501", "select posthorn.push_table_changes('shop.t')")
	s.exec("reset role; grant posthorn_admin to " + writer + "; set role " + writer)
	s.refused("PH005", "select posthorn.push_table_changes('shop.t')")
	s.refused("PH005", "select posthorn.stop_table_changes('shop.t')")
	s.exec("reset role")
	equal(t, "events", value[int](s, "select count(*) from posthorn.events"), 2)
}

func TestHookNeverHasOurRights(t *testing.T) {
	t.Parallel()
	s := database(t)
	owner := s.shop()
	s.exec("create function shop.hook(change jsonb) returns jsonb " + evilHook)
	s.refused("PH005", "select posthorn.push_table_changes('shop.t', hook => 'shop.hook(jsonb)')")
	s.exec("alter function shop.hook(jsonb) security definer")
	s.exec("select posthorn.push_table_changes('shop.t', hook => 'shop.hook(jsonb)')")
	s.exec("insert into shop.t values (1, 'a'), (2, 'b')")
	s.exec("alter function shop.hook(jsonb) security invoker")
	s.refused("PH005", "insert into shop.t values (3, 'a')")
	s.exec("drop function shop.hook(jsonb); create function shop.hook(change jsonb) returns jsonb " + evilHook)
	s.refused("PH005", "insert into shop.t values (3, 'a')")
	equal(t, "rights that the hook had", s.ran(), []string{owner})
}

// One of our functions that other roles may call is safe with their rights, and so it
// cannot be a hook.
func TestHookOfOursIsNotForOthersToChoose(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("create function public.ours(change jsonb) returns jsonb " + evilHook)
	s.exec("create function public.closed(change jsonb) returns jsonb security definer " + evilHook + "; revoke execute on function public.closed(jsonb) from public")
	owner := s.shop()
	s.refused("PH005", "select posthorn.push_table_changes('shop.t', hook => 'public.ours(jsonb)')")
	s.refused("PH005", "select posthorn.push_table_changes('shop.t', hook => 'public.closed(jsonb)')")
	s.exec(`create trigger by_hand after insert on shop.t referencing new table as posthorn_new_rows for each statement
		execute function posthorn.publish_changes('{"namespace": "default", "stream": "default", "hook": "public.ours(jsonb)"}')`)
	s.refused("PH005", "insert into shop.t values (1, 'a')")
	s.exec("reset role; grant " + value[string](s, "select quote_ident(session_user)") + " to " + owner)
	s.exec("insert into shop.t values (1, 'a')") // now its owner is one of us
	equal(t, "events", value[int](s, "select count(*) from posthorn.events"), 1)
}

// Another session may replace a hook between the check and the first call.
func TestHookThatIsReplacedMeanwhile(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.hooked("return change;")
	version := value[string](s, "select posthorn.check_hook('public.hook(jsonb)', 'public.t')")
	equal(t, "the same", value[bool](s, "select posthorn.hook_is_still('public.hook(jsonb)', 'public.t', $1)", version), true)
	s.hooked("return change;")
	s.refused("PH002", "select posthorn.hook_is_still('public.hook(jsonb)', 'public.t', $1)", version)
}

// Converting a value to json calls a cast that the owner of its type has made.
func TestCastsToJSONNeverHaveOurRights(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.shop()
	s.exec(`create type shop.mood as enum ('glad', 'sad');
		create domain shop.moody as shop.mood;
		create type shop.span as range (subtype = int);
		create type shop.pair as (a shop.mood, b int);
		create table shop.moods (id int primary key, m shop.mood, d shop.moody, ms shop.mood[], r shop.span)`)
	s.exec("select posthorn.push_table_changes('shop.moods')")
	s.exec(`create function shop.evil(shop.mood) returns json language plpgsql as 'begin insert into public.trace values (current_user); return ''"evil"''; end';
		create function shop.evil(shop.span) returns json language plpgsql as 'begin insert into public.trace values (current_user); return ''"evil"''; end';
		create cast (shop.mood as json) with function shop.evil(shop.mood);
		create cast (shop.span as json) with function shop.evil(shop.span)`)
	s.exec("insert into shop.moods values (1, 'glad', 'sad', '{glad,null}', '[1,3)'), (2, null, null, null, null)")
	s.exec("update shop.moods set m = 'sad' where id = 1")
	s.exec("create table shop.pairs (p shop.pair)")
	s.refused("PH005", "select posthorn.push_table_changes('shop.pairs')")
	equal(t, "rights that the casts had", s.ran(), []string{})
	equal(t, "events", column[string](s, "select payload::text from posthorn.events order by id"), []string{
		`{"d": "sad", "m": "glad", "r": "[1,3)", "id": 1, "ms": ["glad", null]}`,
		`{"d": null, "m": null, "r": null, "id": 2, "ms": null}`,
		`{"m": "sad"}`,
	})
}

// A trigger made by hand without transition tables would read views with their names.
func TestTemporaryViewsAreNoTransitionTables(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.shop()
	s.exec("create function shop.evil() returns text language plpgsql as 'begin insert into public.trace values (current_user); return ''evil''; end'")
	s.exec("create trigger by_hand after insert on shop.t for each statement execute function posthorn.publish_changes('{\"namespace\": \"default\", \"stream\": \"default\"}')")
	s.refused("42P01", "insert into shop.t values (1, 'a')")
	s.exec("create temporary view posthorn_new_rows as select 1 as id, shop.evil() as v")
	s.refused("PH005", "insert into shop.t values (1, 'a')")
	s.exec("drop trigger by_hand on shop.t; drop view posthorn_new_rows")
	s.exec("create trigger by_hand before insert on shop.t for each row execute function posthorn.publish_changes()")
	s.refused("PH005", "insert into shop.t values (1, 'a')")
	equal(t, "rights that the view had", s.ran(), []string{})
}

func TestTableChangesUnderAnEvilSearchPath(t *testing.T) {
	t.Parallel()
	s := database(t)
	observer := s.another()
	s.hooked("return change operator(pg_catalog.||) '{\"tags\": [\"a\"]}'::pg_catalog.jsonb;")
	s.exec("create table public.plain (id int primary key, v text)")
	s.exec(impostors)
	for _, sql := range []string{
		"select posthorn.push_table_changes('public.plain'), posthorn.push_table_changes('public.t', hook => 'public.hook(pg_catalog.jsonb)')",
		"select * from posthorn.table_changes",
		"insert into public.plain values (1, 'a')", "update public.plain set v = 'b'", "delete from public.plain",
		"insert into public.t values (1, 'a')", "update public.t set secret = 'b'", "delete from public.t",
		"select posthorn.stop_table_changes('public.plain')",
	} {
		s.exec(sql)
	}
	equal(t, "impostors used", value[bool](observer, "select is_called from evil.used"), false)
	equal(t, "events", value[int](observer, "select count(*) from posthorn.events"), 6)
}
