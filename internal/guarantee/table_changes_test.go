package guarantee

import (
	"fmt"
	"strings"
	"testing"
)

// seed 001, table changes: the changes of a statement are in the log, in the same
// transaction.

// changes returns the events of the log as "type key payload old", in their order.
func (s *session) changes() []string {
	s.t.Helper()
	return column[string](s, `select concat_ws(' ', e.type, coalesce(e.key, '-'), e.payload, coalesce(e.metadata->>'old', '-'))
		from posthorn.events e order by e.id`)
}

func TestTableChanges(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec(`create table public.orders (id bigint primary key, state text, cents int)`)
	s.exec(`select posthorn.push_table_changes('public.orders')`)

	s.exec(`insert into public.orders values (1, 'new', 100), (2, 'new', 200)`)
	s.exec(`update public.orders set state = 'paid', cents = cents where id = 1`)
	s.exec(`update public.orders set state = null where id = 2`)
	s.exec(`update public.orders set state = state`)
	s.exec(`update public.orders set cents = 0 where id = 3`)
	s.exec(`delete from public.orders where id = 2`)
	s.exec(`begin; insert into public.orders values (3, 'new', 300); rollback`)

	equal(t, "events", s.changes(), []string{
		`public.orders.insert 1 {"id": 1, "cents": 100, "state": "new"} -`,
		`public.orders.insert 2 {"id": 2, "cents": 200, "state": "new"} -`,
		`public.orders.update 1 {"state": "paid"} {"id": 1, "cents": 100, "state": "new"}`,
		`public.orders.update 2 {"state": null} {"id": 2, "cents": 200, "state": "new"}`,
		`public.orders.delete 2 {"id": 2, "cents": 200, "state": null} -`,
	})
	equal(t, "metadata", column[string](s, "select distinct (metadata::jsonb - 'old')::text from posthorn.events"), []string{`{"table": "public.orders"}`})
}

// The old and the new rows of an update are in two tables without a common key. A
// column that never changes shows whether they were paired correctly: otherwise it
// would be reported as changed.
//
// seed 001, table changes
func TestTableChangesPairRows(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		setup, change string
		updates       int
	}{
		"all":              {table, "update public.t set v = v + 1", 400},
		"in another order": {table, "update public.t set v = t.v + x.v from (select id, v from public.t order by id desc) x where x.id = t.id and t.id % 2 = 0", 200},
		"primary key":      {table, "update public.t set id = 10000 - id", 400},
		"no primary key":   {strings.Replace(table, "primary key", "", 1), "update public.t set v = v + 1", 400},
		"partitions":       {partitioned, "update public.t set v = v + 1", 400},
		"moves":            {partitioned, "update public.t set id = (id * 7919) % 2003 + 5000 * (id % 2)", 400},
		"on conflict": {table, `insert into public.t select i, 'new', 0 from generate_series(201, 600) i
			on conflict (id) do update set v = -1`, 200},
		"merge": {table, `merge into public.t using (select i from generate_series(1, 600) i) x on x.i = t.id
			when matched and t.id % 3 = 0 then delete
			when matched then update set v = t.v + 1
			when not matched then insert values (x.i, 'new', 0)`, 267},
		"twice in a statement": {table, `with a as (update public.t set v = -1 where id <= 100 returning 1)
			update public.t set v = -2 where id > 100`, 400},
		"rows that stay": {table, "update public.t set v = case when id % 4 = 0 then v else v + 1 end", 300},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.exec(test.setup)
			s.exec("insert into public.t select i, 'tag ' || i, i from generate_series(1, 400) i")
			s.exec("select posthorn.push_table_changes('public.t')")
			s.exec("analyze public.t")
			s.exec("create table public.before as select * from public.t")
			s.exec(test.change)
			equal(t, "updates", value[int](s, "select count(*) from posthorn.events where type = 'public.t.update'"), test.updates)
			equal(t, "updates that take two rows for one", value[int](s, `select count(*) from posthorn.events
				where type = 'public.t.update' and payload::jsonb ? 'tag'`), 0)
			// Applied to the old state, the events produce the new state.
			equal(t, "rows that are missing or wrong", value[int](s, `select count(*) from (
				select id, tag, v from public.t
				except all
				(select p.* from posthorn.events e, jsonb_populate_record(null::public.before, coalesce((e.metadata->'old')::jsonb, '{}') || e.payload::jsonb) p
				where e.type <> 'public.t.delete'
				union all
				select b.* from public.before b where not exists (
					select from posthorn.events e where (e.metadata->'old'->>'tag' = b.tag) or (e.type = 'public.t.delete' and e.payload->>'tag' = b.tag)))) x`), 0)
		})
	}
}

const (
	table       = "create table public.t (id int primary key, tag text, v int)"
	partitioned = `create table public.t (id int, tag text, v int) partition by range (id);
		create table public.t1 partition of public.t for values from (minvalue) to (1000);
		create table public.t2 (v int, gone int, tag text, id int);
		alter table public.t2 drop column gone;
		alter table public.t attach partition public.t2 for values from (1000) to (maxvalue);`
)

// seed 001, table changes
func TestTableChangesByMergeIntoPartitions(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec(partitioned)
	s.exec("insert into public.t values (1, 'a', 1), (1001, 'b', 1)")
	s.exec("select posthorn.push_table_changes('public.t')")
	const merge = `merge into public.t using (values (1), (2), (1001)) x (i) on x.i = t.id
		when matched then update set id = 3000 - t.id when not matched then insert values (x.i, 'c', 1)`
	s.refused("PH005", merge)
	s.refused("PH005", "do $$begin execute $q$"+strings.Replace(merge, "merge into", "merge\ninto", 1)+"$q$; end$$")
	equal(t, "rows", value[int](s, "select sum(id) from public.t"), 1002)
}

// A row that has left its partition, and that a trigger keeps out of the next one, is
// among the old rows and not among the new ones.
//
// seed 001, table changes
func TestTableChangesOfARowThatGetsLostBetweenPartitions(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec(partitioned)
	s.exec("insert into public.t select i, 'tag ' || i, 0 from generate_series(1, 10) i")
	s.exec(`create function public.keep_out() returns trigger language plpgsql as 'begin return case when new.id <> 1005 then new end; end'`)
	s.exec("create trigger keep_out before insert on public.t2 for each row execute function public.keep_out()")
	s.exec("select posthorn.push_table_changes('public.t')")
	s.refused("PH005", "update public.t set id = id + 1000")
	equal(t, "rows that were not moved", value[int](s, "select count(*) from public.t1"), 10)
	s.exec("update public.t set id = id + 1000 where id <> 5")
	equal(t, "events", value[int](s, "select count(*) from posthorn.events"), 9)
}

// seed 001, table changes
func TestTableChangesByForeignKeys(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("create table public.parent (id int primary key)")
	s.exec(`create table public.child (n int primary key, parent int references public.parent on update cascade on delete cascade)`)
	s.exec(`create table public.friend (n int primary key, parent int references public.parent on update cascade on delete set null)`)
	s.exec("insert into public.parent select generate_series(1, 3)")
	s.exec("insert into public.child select i, i from generate_series(1, 3) i")
	s.exec("insert into public.friend select i, i from generate_series(1, 3) i")
	s.exec("select posthorn.push_table_changes('public.child'), posthorn.push_table_changes('public.friend')")
	s.exec("update public.parent set id = id + 10")
	s.exec("delete from public.parent where id > 11")
	got := column[string](s, `select concat_ws(' ', e.type, e.key, e.payload, e.metadata->>'old') from posthorn.events e order by 1`)
	equal(t, "events", got, []string{
		`public.child.delete 2 {"n": 2, "parent": 12}`,
		`public.child.delete 3 {"n": 3, "parent": 13}`,
		`public.child.update 1 {"parent": 11} {"n": 1, "parent": 1}`,
		`public.child.update 2 {"parent": 12} {"n": 2, "parent": 2}`,
		`public.child.update 3 {"parent": 13} {"n": 3, "parent": 3}`,
		`public.friend.update 1 {"parent": 11} {"n": 1, "parent": 1}`,
		`public.friend.update 2 {"parent": 12} {"n": 2, "parent": 2}`,
		`public.friend.update 2 {"parent": null} {"n": 2, "parent": 12}`,
		`public.friend.update 3 {"parent": 13} {"n": 3, "parent": 3}`,
		`public.friend.update 3 {"parent": null} {"n": 3, "parent": 13}`,
	})
}

// The events of a statement are in the order of its rows.
//
// seed 001, table changes
func TestTableChangesKeepTheOrderOfRows(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec(table)
	s.exec("select posthorn.push_table_changes('public.t')")
	s.exec("insert into public.t select i, 'x', 0 from generate_series(5000, 1, -1) i")
	s.exec("update public.t set v = 1")
	s.exec("delete from public.t")
	for _, operation := range []string{"insert", "update", "delete"} {
		equal(t, operation+" out of order", value[int](s, `select count(*) from (
			select key::int as key, lead(key::int) over (order by id) as next from posthorn.events where type = 'public.t.' || $1) x
			where next <> key - 1`, operation), 0)
	}
	equal(t, "events", value[int](s, "select count(*) from posthorn.events"), 15000)
}

// Types without equality, numbers that no float can represent, columns that were
// dropped or added, and columns with confusing names.
//
// seed 001, table changes
func TestTableChangesOfAllTypes(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec(`create type public.mood as enum ('glad', 'sad');
		create type public.pair as (x int, "select" public.mood);
		create domain public.moods as public.mood[];
		create table public.odd (
			"primary" bigint primary key, gone int, j json, jb jsonb, x xml, p point, a int[], c public.pair, n numeric(20, 4), f float8,
			m public.mood, ms public.moods, r int4range, b bytea, "O" text, whole text, "table" int, payload text,
			twice bigint generated always as ("primary" * 2) stored)`)
	s.exec("alter table public.odd drop column gone")
	s.exec("select posthorn.push_table_changes('public.odd')")
	s.exec(`insert into public.odd ("primary", j, jb, x, p, a, c, n, f, m, ms, r, b, whole, "table", payload) values
		(9007199254740993, '{"b": 1,  "a": [1]}', '{}', '<a/>', '(1,2)', '{1,null}', '(1,sad)', 1.5000, 'NaN', 'glad', '{glad,sad}', '[1,3)', '\x01ff', 'w', 7, 'p')`)
	s.exec(`alter table public.odd add column late numeric default 'NaN'`)
	s.exec(`update public.odd set j = '{"a":[1],"b":1}'`)
	s.exec(`update public.odd set j = '{"a": [2]}', p = '(2,2)', f = '-Infinity', a = '{}', c = null, n = 123456789012345.6789, "table" = null`)
	s.exec(`update public.odd set x = '<b/>', m = 'sad', ms = '{sad}', "primary" = 1, late = 1`)
	got := column[string](s, `select payload::text from posthorn.events order by id`)
	equal(t, "inserted", got[0], `{"O": null, "a": [1, null], "b": "\\x01ff", "c": {"x": 1, "select": "sad"}, "f": "NaN", `+
		`"j": {"a": [1], "b": 1}, "m": "glad", "n": 1.5000, "p": "(1,2)", "r": "[1,3)", "x": "<a/>", "jb": {}, "ms": ["glad", "sad"], `+
		`"table": 7, "twice": 18014398509481986, "whole": "w", "payload": "p", "primary": 9007199254740993}`)
	equal(t, "updates", got[1:], []string{
		`{"a": [], "c": null, "f": "-Infinity", "j": {"a": [2]}, "n": 123456789012345.6789, "p": "(2,2)", "table": null}`,
		`{"m": "sad", "x": "<b/>", "ms": ["sad"], "late": 1, "twice": 2, "primary": 1}`,
	})
}

// seed 001, table changes
func TestTableChangesHaveKeys(t *testing.T) {
	t.Parallel()
	s := database(t)
	for i, test := range []struct{ columns, row, want string }{
		{"a int primary key", "7", "7"},
		{"a int", "7", ""},
		{"b text, a int, c int, primary key (a, b)", "'x', 7, 1", "7,x"},
		{`"or ""not'" text, a int, primary key ("or ""not'") include (a)`, "'x', 7", "x"},
		{"a text primary key", "repeat('é', 127)", strings.Repeat("é", 127)},
		{"a text primary key", "repeat('é', 128)", fmt.Sprintf("%x", value[[]byte](s, "select sha256(convert_to(repeat('é', 128), 'UTF8'))"))},
		{"a text primary key", `E'a\nb'`, fmt.Sprintf("%x", value[[]byte](s, `select sha256('a\012b')`))},
		{"a uuid primary key", "'6f2d3c1e-0000-4000-8000-000000000001'", "6f2d3c1e-0000-4000-8000-000000000001"},
	} {
		name := fmt.Sprintf("public.keyed%d", i)
		s.exec(fmt.Sprintf("create table %s (%s)", name, test.columns))
		s.exec(fmt.Sprintf("select posthorn.push_table_changes('%s')", name))
		s.exec(fmt.Sprintf("insert into %s values (%s)", name, test.row))
		equal(t, "key of "+test.columns, value[string](s, "select coalesce(key, '') from posthorn.events where type = $1", name+".insert"), test.want)
	}
}

// If one row is too large, the whole statement is rolled back.
//
// seed 001, table changes
func TestTableChangesThatAreTooLarge(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec(table)
	s.exec("update posthorn.config set value = '2000' where key = 'max_payload_bytes'")
	s.exec("insert into public.t values (0, repeat('x', 3000), 0)")
	s.exec("select posthorn.push_table_changes('public.t')")
	err := s.refused("PH004", "insert into public.t select i, repeat('x', i), 0 from generate_series(1900, 2000) i")
	for _, want := range []string{"public.t", "2000"} {
		if !strings.Contains(err.Message, want) {
			t.Errorf("the error does not name %s: %s", want, err.Message)
		}
	}
	s.refused("PH004", "update public.t set v = 1") // the old row is too large
	equal(t, "rows", value[int](s, "select count(*) from public.t where v = 0"), 1)
	equal(t, "events", value[int](s, "select count(*) from posthorn.events"), 0)
}

// seed 001, table changes
func TestPushTableChangesAgainAndStop(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec(`create table public."odd ""name" (id int primary key)`)
	const push = `select posthorn.push_table_changes('public."odd ""name"'`
	list := func() []string {
		t.Helper()
		return column[string](s, `select concat_ws(' ', "table", operations, namespace, stream, hook) from posthorn.table_changes`)
	}
	triggers := func() []string {
		t.Helper()
		return column[string](s, "select xmin || tgname from pg_trigger where tgfoid = 'posthorn.publish_changes'::regproc order by tgname")
	}
	s.exec(push + ")")
	equal(t, "pushed", list(), []string{`public."odd ""name" {delete,insert,update} default default`})
	before := triggers()
	s.exec(push + ")")
	equal(t, "triggers after the same again", triggers(), before)
	s.exec(`alter table public."odd ""name" disable trigger posthorn_push_insert`)
	equal(t, "pushed with one disabled", list(), []string{`public."odd ""name" {delete,update} default default`})
	s.exec("select posthorn.define_namespace('shop')")
	s.exec(push + `, "delete" => false, namespace => 'shop', stream => E'it''s \\ "odd"')`)
	equal(t, "pushed after a change", list(), []string{`public."odd ""name" {insert,update} shop it's \ "odd"`})
	s.exec(`insert into public."odd ""name" values (1)`)
	s.exec(`delete from public."odd ""name"`)
	equal(t, "events", column[string](s, `select s.namespace || ' ' || s.name || ' ' || e.type from posthorn.events e join posthorn.streams s on s.id = e.stream_id`),
		[]string{`shop it's \ "odd" public.odd "name.insert`})
	equal(t, "stopped", value[int](s, `select posthorn.stop_table_changes('public."odd ""name"')`), 2)
	equal(t, "stopped again", value[int](s, `select posthorn.stop_table_changes('public."odd ""name"')`), 0)
	equal(t, "pushed after stop", list(), []string{})
	s.exec(push + ")")
	s.exec(push + `, false, false, false)`)
	equal(t, "pushed when nothing is wanted", list(), []string{})
}

// seed 001, table changes
func TestPushTableChangesRefuses(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec(table)
	s.exec("create view public.v as select 1 as a; create materialized view public.m as select 1 as a; create sequence public.s; create temporary table tt (a int)")
	s.exec("create foreign data wrapper w; create server w foreign data wrapper w; create foreign table public.f (a int) server w")
	s.exec(`create table public."a` + "\n" + `b" (a int)`)
	for _, test := range []struct{ code, arguments string }{
		{"PH005", "'public.v'"},
		{"PH005", "'public.m'"},
		{"PH005", "'public.f'"},
		{"PH005", "'public.s'"},
		{"PH005", "'tt'"},
		{"PH005", "'pg_catalog.pg_class'"},
		{"PH005", "'information_schema.sql_features'"},
		{"PH005", "'posthorn.events'"},
		{"PH005", "'posthorn.config'"},
		{"PH005", "'posthorn.group_status'"},
		{"PH001", "null"},
		{"PH001", "1"},
		{"PH001", "'public.t', namespace => 'nowhere'"},
		{"PH001", "'public.t', namespace => null"},
		{"PH004", "'public.t', stream => ''"},
		{"PH004", "'public.t', stream => null"},
		{"PH004", `E'public."a\nb"'`},
		{"PH004", "'public.t', hook => 'pg_catalog.lower(text)'"},
		{"PH004", "'public.t', hook => 'pg_catalog.jsonb_array_elements(jsonb)'"},
		{"PH004", "'public.t', hook => 'pg_catalog.jsonb_typeof(jsonb)'"},
		{"42883", "'public.t', hook => 'public.missing(jsonb)'"},
	} {
		s.refused(test.code, "select posthorn.push_table_changes("+test.arguments+")")
	}
	s.exec(`create function public.f() returns trigger language plpgsql as 'begin return null; end';
		create trigger posthorn_push_update after update on public.t execute function public.f()`)
	s.refused("PH002", "select posthorn.push_table_changes('public.t')")
	equal(t, "triggers", value[int](s, "select count(*) from posthorn.push_triggers"), 0)
}

// seed 001, table changes
func TestTableChangesWithTheSchemaRemoved(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec(table)
	s.exec("select posthorn.push_table_changes('public.t')")
	s.exec("set client_min_messages = warning; drop schema posthorn cascade")
	s.exec("insert into public.t values (1)")
	equal(t, "triggers", value[int](s, "select count(*) from pg_trigger where not tgisinternal"), 0)
}

// seed 001, table changes
func TestTableChangesByCopyAndFromOtherSessions(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec(table)
	s.exec("select posthorn.push_table_changes('public.t')")
	if _, err := s.conn.PgConn().CopyFrom(t.Context(), strings.NewReader("1\ta\t1\n2\tb\t2\n"), "copy public.t from stdin"); err != nil {
		t.Fatal(err)
	}
	s.another().exec("update public.t set v = 3 where id = 2")
	equal(t, "events", s.changes(), []string{
		`public.t.insert 1 {"v": 1, "id": 1, "tag": "a"} -`,
		`public.t.insert 2 {"v": 2, "id": 2, "tag": "b"} -`,
		`public.t.update 2 {"v": 3} {"v": 2, "id": 2, "tag": "b"}`,
	})
}

// The definition of the triggers contains the names of the tables and streams: it can
// be dumped and restored.
//
// seed 001, table changes
func TestTableChangesAreInTheDefinitionOfTriggers(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.hooked(`return change || '{"tags": ["a"]}';`)
	definitions := column[string](s, "select pg_get_triggerdef(oid) from pg_trigger where tgfoid = 'posthorn.publish_changes'::regproc order by tgname")
	listed := value[string](s, "select array_agg(c)::text from posthorn.table_changes c")
	s.exec("create table public.copy as select * from public.t; drop table public.t; drop function public.hook(jsonb)")
	s.exec("alter table public.copy rename to t; alter table public.t add primary key (id)")
	s.exec("create function public.hook(change jsonb) returns jsonb language sql as $$ select change || '{\"tags\": [\"b\"]}' $$")
	for _, definition := range definitions {
		s.exec(definition)
	}
	equal(t, "pushed", value[string](s, "select array_agg(c)::text from posthorn.table_changes c"), listed)
	s.exec("insert into public.t values (1, 'x')")
	equal(t, "tags", value[[]string](s, "select tags from posthorn.events"), []string{"b"})
}
