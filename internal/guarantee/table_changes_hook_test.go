package guarantee

import (
	"strings"
	"testing"
)

// seed 001, table changes

// hooked makes a table whose changes go through a hook with this body.
func (s *session) hooked(body string) {
	s.t.Helper()
	s.exec("create or replace function public.hook(change jsonb) returns jsonb language plpgsql as $$begin " + body + " end$$")
	s.exec("create table if not exists public.t (id int primary key, secret text)")
	s.exec("select posthorn.push_table_changes('public.t', hook => 'public.hook(jsonb)')")
}

func TestHookAltersAndSkipsChanges(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.hooked(`if (change->'payload'->>'id')::int % 2 = 0 then return null; end if;
		return change || jsonb_build_object('type', 'order.' || split_part(change->>'type', '.', 3), 'key', 'k' || (change->>'key'),
			'tags', '["a", "b"]'::jsonb, 'payload', (change->'payload') - 'secret', 'metadata', (change->'metadata') || '{"by": "hook"}');`)
	s.exec("insert into public.t select i, 'x' from generate_series(1, 4) i")
	equal(t, "events", column[string](s, "select concat_ws(' ', type, key, tags, payload, metadata) from posthorn.events order by id"), []string{
		`order.insert k1 {a,b} {"id": 1} {"by": "hook", "table": "public.t"}`,
		`order.insert k3 {a,b} {"id": 3} {"by": "hook", "table": "public.t"}`,
	})
}

// A hook receives the change, and may remove fields that are not required.
func TestHookIsGivenTheChange(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("create table public.seen (change jsonb)")
	s.hooked(`insert into public.seen values (change); return change - '{key,tags,metadata}'::text[];`)
	s.exec("insert into public.t values (1, 'x')")
	s.exec("update public.t set secret = null")
	equal(t, "seen", column[string](s, "select change::text from public.seen"), []string{
		`{"key": "1", "tags": [], "type": "public.t.insert", "payload": {"id": 1, "secret": "x"}, "metadata": {"table": "public.t"}}`,
		`{"key": "1", "tags": [], "type": "public.t.update", "payload": {"secret": null}, "metadata": {"old": {"id": 1, "secret": "x"}, "table": "public.t"}}`,
	})
	equal(t, "events", column[string](s, "select concat_ws(' ', type, key, tags, payload, metadata) from posthorn.events order by id"), []string{
		`public.t.insert {} {"id": 1, "secret": "x"} {}`, `public.t.update {} {"secret": null} {}`,
	})
}

func TestHookThatReturnsNonsense(t *testing.T) {
	t.Parallel()
	s := database(t)
	for result, want := range map[string]string{
		`change || '{"stream": "x"}'`:  `an unknown field "stream"`,
		`change - 'type'`:              "a type that is no text",
		`change || '{"type": 1}'`:      "a type that is no text",
		`change || '{"type": ""}'`:     "a type that is not",
		`change || '{"key": 1}'`:       "a key that is no text",
		`change || '{"key": "a\nb"}'`:  "a key that is not",
		`change || '{"tags": "a"}'`:    "tags that are no array",
		`change || '{"tags": [1]}'`:    "tags that are no array",
		`change || '{"tags": [""]}'`:   "a tag that is not",
		`change || '{"metadata": []}'`: "metadata that is no object",
		`change - 'payload'`:           "no payload",
		`'[]'`:                         "no object",
		`'"x"'`:                        "no object",
		`change || jsonb_build_object('payload', repeat('x', 2000000))`: "larger than the limit",
	} {
		s.hooked("return " + result + ";")
		err := s.refused("PH004", "insert into public.t values (1, 'x')")
		if !strings.Contains(err.Message, want) || !strings.Contains(err.Message, "public.hook(jsonb)") {
			t.Errorf("%s: %s; want the hook and %q", result, err.Message, want)
		}
	}
	s.hooked("return 'null';")
	s.exec("insert into public.t values (1, 'x')")
	s.exec("drop function public.hook(jsonb)")
	s.refused("PH001", "insert into public.t values (2, 'x')")
	equal(t, "events", value[int](s, "select count(*) from posthorn.events"), 0)
}
