package guarantee

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// conditions are compared with plain SQL. Each runs in both of its compiled forms.
var conditions = []string{
	`s.params @> jsonb_build_object('topic', e.topic)`,
	`s.params @> jsonb_build_object('a', e.payload->'a')`,
	`s.params @> jsonb_build_object('a', e.payload->>'a')`,
	`s.params @> jsonb_build_object('key', e.key)`,
	`s.params @> jsonb_build_object('a', e.payload->'a', 'topic', e.type)`,
	`s.params @> jsonb_build_object('a', e.payload->'a', 'key', e.key)`,
	`s.params @> jsonb_build_object('a', e.payload->'a') and (s.params->>'topic' is null or s.params->>'topic' = e.topic)`,
	`(e.key is null and s.params @> jsonb_build_object('topic', e.topic)) and (e.stream <> 'x' and (e.type <> 'y' and true))`,
	`e.payload->>'a' = any (array['x', 'ü', '1']) and s.params @> jsonb_build_object('topic', e.topic)`,
	`s.params @> jsonb_build_object('a', e.payload->'a') and s.params @> jsonb_build_object('topic', e.topic)`,
	`s.params->>'topic' = e.topic`,
	`s.params->'a' = e.payload->'a' or s.params->>'topic' = e.key`,
	`not (s.params @> jsonb_build_object('a', e.payload->'a'))`,
	`not (s.params @> jsonb_build_object('topic', e.topic) and e.key is null)`,
	`(s.params @> jsonb_build_object('topic', e.topic)) is not true`,
	`(s.params @> jsonb_build_object('topic', e.topic)) = (e.key is null)`,
	`e.payload->>'a' = 'it''s' or e.key = E'back\\slash' or e.key = 'ü' or e.key = U&'\00fc'`,
	`e.payload @> (s.params->'want')`,
	`(s.params->'want') <@ e.payload`,
	`s.params @> jsonb_build_object('it''s', e.key)`,
	`s.params @> jsonb_build_object(E'b\\s', e.key)`,
	`s.params @> jsonb_build_object('ü, ''(', e.key, ') AND (', e.topic)`,
	`s.params @> jsonb_build_object('a', e.key, 'a', e.type)`,
	`s.params @> jsonb_build_object('a', jsonb_build_object('b', e.payload->'a'->'b'))`,
	`s.params @> jsonb_build_object('a', array[1, 2])`,
	`s.params @> jsonb_build_object('tags', e.tags)`,
	`s.params @> jsonb_build_object('n', e.id % 3)`,
	`s.params @> jsonb_build_object('n', (e.id % 3)::float8)`,
	`s.params @> jsonb_build_object('n', case e.id % 4 when 0 then null else 1.0 end)`,
	`s.params @> jsonb_build_object('even', e.id % 2 = 0)`,
	`s.params @> jsonb_build_object('day', e.created_at::date - 100000)`,
	`s.params @> jsonb_build_object(variadic array['topic', e.topic])`,
	`s.params @> jsonb_build_object()`,
	`s.params @> (jsonb_build_object('topic', e.topic) || jsonb_build_object('key', e.key))`,
	`jsonb_build_object('topic', e.topic) <@ s.params`,
	`s.params @> jsonb_build_object('topic', coalesce(s.params->>'topic', e.topic))`,
	`case when e.key is null then s.params ? 'topic' else s.params @> jsonb_build_object('key', e.key) end`,
	`e.tags @> array['red'] and e.metadata->>'m' is null`,
	`e.stream like 'def%' and s.params @> jsonb_build_object('topic', e.topic)`,
	`s.params @> jsonb_build_object('topic', e.topic) -- and false`,
	`/* e.payload */ e.type in ('order.placed', 'ü')`,
	`true`,
	`e.key is null`,
	`e is not null and e.key in ('ü', ' AS matches FROM unnest(')`,
	`null::boolean`,
}

// Values in payloads and params, and params as a whole.
var someValues = []string{
	`1`, `1.0`, `1e0`, `"1"`, `"x"`, `"ü"`, `"it's"`, `"back\\slash"`, `null`, `true`, `"true"`, `[]`, `{}`, `[1]`, `[1, 2]`, `[2, 1, 1]`,
	`{"b": 1}`, `{"b": 1.0, "c": 2}`, `{"b": [1]}`, `""`, `100000000000000000000.10`, `"2"`, `2`,
}

var someTypes = []string{"order.placed", "order.paid", "ü", "1", "it's"}

// someKeys has "" for an event without a key.
var someKeys = []string{"", "ü", "1", `back\slash`, "order.paid", "null"}

func oneOf[T any](r *rand.Rand, of []T) T { return of[r.IntN(len(of))] }

// publishSome publishes events of all kinds in a transaction.
func (s *session) publishSome(r *rand.Rand, n int) {
	s.t.Helper()
	s.exec("begin")
	for range n {
		payload := "{}"
		switch r.IntN(8) {
		case 0:
		case 1:
			payload = oneOf(r, someValues)
		default:
			payload = fmt.Sprintf(`{"a": %s, "c": %s}`, oneOf(r, someValues), oneOf(r, someValues))
		}
		tags := [][]string{nil, {"red"}, {"red", "blue"}, {"ü", "blue"}}
		s.exec("select posthorn.publish('default', $1, $2::text::json, key => nullif($3, ''), tags => $4, stream => $5)",
			oneOf(r, someTypes), payload, oneOf(r, someKeys), oneOf(r, tags), oneOf(r, []string{"default", "stream:b", "def.c"}))
	}
	s.exec("commit")
}

func someParams(r *rand.Rand) string {
	if r.IntN(15) == 0 {
		return oneOf(r, someValues)
	}
	params := map[string]json.RawMessage{}
	for _, key := range []string{"a", "a", "want", "topic", "topic", "key", "it's", `b\s`, "n", "even", "tags", "day", "ü, '(", ") AND ("} {
		if r.IntN(3) == 0 {
			continue
		}
		v := oneOf(r, someValues)
		switch {
		case r.IntN(8) == 0:
		case key == "topic", key == ") AND (":
			v = string(mustJSON(oneOf(r, someTypes)))
		case key == "key", key == "it's", key == `b\s`, key == "ü, '(":
			v = string(mustJSON(oneOf(r, someKeys)))
		case key == "n":
			v = oneOf(r, []string{"0", "1.0", "2", "null"})
		case key == "even":
			v = oneOf(r, []string{"true", "false"})
		case key == "tags":
			v = oneOf(r, []string{`["red"]`, `[]`, `["blue"]`})
		case key == "want":
			v = fmt.Sprintf(`{"a": %s}`, v)
		}
		params[key] = json.RawMessage(v)
	}
	return string(mustJSON(params))
}

func mustJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err) // cannot fail for the texts of these tests
	}
	return text
}

// loggedEvents are the events of the log as conditions see them.
const loggedEvents = `(
	select row(x.id, x.type, x.type, st.name, x.key, x.tags, x.payload::jsonb, x.metadata::jsonb, x.created_at)::posthorn.event as e
	from posthorn.events x join posthorn.streams st on st.id = x.stream_id where x.namespace_id = 1)`

// naively evaluates the conditions of a group in plain SQL, for each event and
// subscription.
func (s *session) naively(group string) []string {
	s.t.Helper()
	var parts []string
	for _, condition := range column[string](s, "select distinct conditions_sql from posthorn.subscriptions where group_id = $1", group) {
		parts = append(parts, fmt.Sprintf(`
			select (l.e).id, s.name from %s l
			cross join lateral (select (l.e).*) e
			cross join posthorn.subscriptions s
			where s.group_id = %s and s.conditions_sql = %s and (%s
			)`, loggedEvents, quote(group), quoteE(condition), condition))
	}
	return column[string](s, "select id || ' ' || string_agg(name, ' ' order by name collate \"C\") from ("+strings.Join(parts, " union all ")+") x group by id order by id")
}

func quoteE(text string) string { return "E" + quote(strings.ReplaceAll(text, `\`, `\\`)) }

// A group's claims hand out exactly the pairs of events and subscriptions for which
// plain SQL finds the conditions true: with few events, which are looked up, and with
// many, which are joined.
//
// seed 001.22, 001.23
func TestConditionsMatchAsPlainSQLDoes(t *testing.T) {
	t.Parallel()
	s := database(t)
	r := rand.New(rand.NewPCG(1, 0))
	var names, texts, params []string
	for i, condition := range conditions {
		for k := range 24 {
			names = append(names, fmt.Sprintf("%02d-%02d", i, k))
			texts = append(texts, condition)
			params = append(params, someParams(r))
		}
	}
	s.exec(`insert into posthorn.subscriptions (group_id, name, conditions_sql, params)
		select g, x.name, x.condition, x.params::jsonb
		from unnest(array['one', 'many']) g, unnest($1::text[], $2::text[], $3::text[]) x (name, condition, params)`, names, texts, params)
	if joined := value[int](s, "select count(*) from posthorn.conditions where has_many"); joined < 15 {
		t.Errorf("only %d conditions have a form for many events", joined)
	}
	s.publishSome(r, 60)

	want := s.naively("one")
	if len(want) != 60 {
		t.Errorf("only %d events match something", len(want))
	}
	equal(t, "one at a time", s.handOut("one", 1), want)
	equal(t, "many at a time", s.handOut("many", 100), want)
	equal(t, "stopped", value[int](s, "select count(*) from posthorn.subscriptions where stopped_at is not null"), 0)
}

// someFilter returns a random filter.
func someFilter(r *rand.Rand) string {
	filter := map[string]any{}
	patterns := []string{"order.placed", "order.*", "order.>", ">", "*", "ü", "*.paid", "nothing", "*.*"}
	streams := []string{"default", "stream:b", "def.*", "def.c", "*", "nothing"}
	oneOrMore := func(of []string) any {
		if r.IntN(2) == 0 {
			return oneOf(r, of)
		}
		return []string{oneOf(r, of), oneOf(r, of)}
	}
	if r.IntN(2) == 0 {
		filter["type"] = oneOrMore(patterns)
	}
	if r.IntN(4) == 0 {
		filter["stream"] = oneOrMore(streams)
	}
	if r.IntN(4) == 0 {
		filter["key"] = oneOrMore(someKeys)
	}
	if r.IntN(4) == 0 {
		filter["tags_any"] = []string{oneOf(r, []string{"red", "ü"}), "none"}
	}
	if r.IntN(4) == 0 {
		filter["tags_all"] = []string{oneOf(r, []string{"red", "ü"}), "blue"}
	}
	if r.IntN(3) == 0 {
		payload := map[string]json.RawMessage{}
		for _, key := range []string{"a", "c"} {
			if r.IntN(2) == 0 {
				payload[key] = json.RawMessage(oneOf(r, someValues))
			}
		}
		filter["payload"] = payload
	}
	return string(mustJSON(filter))
}

// seed 001.22: filters, alone and combined, are compared with plain SQL.
func TestFiltersMatchAsPlainSQLDoes(t *testing.T) {
	t.Parallel()
	s := database(t)
	r := rand.New(rand.NewPCG(1, 0))
	filters := []string{
		`{}`, `{"type": "order.placed"}`, `{"type": "order.*"}`, `{"type": ["order.*", "ü"]}`, `{"type": ">"}`,
		`{"stream": "default"}`, `{"stream": ["stream:b", "def.*"]}`, `{"key": "1"}`, `{"key": ["1", "ü", ""]}`,
		`{"tags_any": ["red", "none"]}`, `{"tags_all": ["red", "blue"]}`, `{"payload": {}}`, `{"payload": {"a": 1}}`,
		`{"payload": {"a": 1.00}}`, `{"payload": {"a": "1"}}`, `{"payload": {"a": {"b": 1}}}`, `{"payload": {"a": null}}`,
		`{"payload": {"a": [1]}}`, `{"payload": {"a": "ü", "c": "back\\slash"}}`, `{"payload": {"a": 100000000000000000000.1}}`,
		`{"type": "order.placed", "stream": "default", "tags_any": ["red"], "payload": {"c": {}}}`,
	}
	for range 150 {
		filters = append(filters, someFilter(r))
	}
	s.exec("begin")
	for i, filter := range filters {
		s.subscribe(fmt.Sprintf("%03d", i), filter)
	}
	s.exec("commit")
	s.publishSome(r, 150)

	// Patterns are compared as regular expressions, and other values literally.
	among := func(field, column string) string {
		return fmt.Sprintf(`(not params ? '%[1]s' or %[2]s in (select jsonb_array_elements_text(case jsonb_typeof(params->'%[1]s')
			when 'array' then params->'%[1]s' else jsonb_build_array(params->'%[1]s') end)))`, field, column)
	}
	fits := func(field, column string) string {
		return fmt.Sprintf(`(not params ? '%[1]s' or exists (select from jsonb_array_elements_text(case jsonb_typeof(params->'%[1]s')
			when 'array' then params->'%[1]s' else jsonb_build_array(params->'%[1]s') end) p
			where %[2]s ~ ('^' || replace(replace(replace(p, '.', '\.'), '*', '[^.]+'), '>', '.+') || '$')))`, field, column)
	}
	want := column[string](s, `
		select e.id || ' ' || string_agg(s.name, ' ' order by s.name collate "C")
		from `+loggedEvents+` l cross join lateral (select (l.e).*) e cross join posthorn.subscriptions s
		where `+fits("type", "e.type")+` and `+fits("stream", "e.stream")+` and `+among("key", "e.key")+`
			and (not params ? 'tags_any' or e.tags && array(select jsonb_array_elements_text(params->'tags_any')))
			and (not params ? 'tags_all' or e.tags @> array(select jsonb_array_elements_text(params->'tags_all')))
			and (not params ? 'payload' or e.payload @> (params->'payload'))
		group by e.id order by e.id`)
	equal(t, "handed out", s.handOut(group, 7), want)
}

func TestBadSubscriptionsAreRefused(t *testing.T) {
	t.Parallel()
	s := database(t)
	long := strings.Repeat("x", 256)
	for _, filter := range []string{
		`[]`, `"order.placed"`, `7`, `null`, `{"types": "a"}`, `{"type": null}`, `{"type": 7}`, `{"type": [7]}`, `{"type": []}`, `{"type": ""}`,
		`{"type": "order*"}`, `{"type": ">.a"}`, `{"type": ["a", "a..b"]}`, `{"type": "` + long + `"}`, `{"stream": "a*"}`, `{"stream": {}}`,
		`{"key": null}`, `{"key": []}`, `{"key": {}}`, `{"key": "` + long + `"}`, `{"key": ["a\n"]}`,
		`{"tags_any": "red"}`, `{"tags_any": []}`, `{"tags_any": [1]}`, `{"tags_any": [""]}`, `{"tags_all": ["` + strings.Repeat("x", 3000) + `"]}`,
		`{"expiry_interval": "soon"}`, `{"expiry_interval": "1 millisecond"}`, `{"expiry_interval": "-1 day"}`,
		`{"type": "a", "conditions_sql": "true"}`, `{"conditions_sql": null}`, `{"conditions_sql": 7}`, `{"conditions_sql": "true", "name": "a"}`,
	} {
		err := s.refused("PH004", "select posthorn.subscribe('default', $1, 'a', $2::text::jsonb)", group, filter)
		if err.Hint == "" {
			t.Errorf("%s: %s: no hint", filter, err.Message)
		}
	}
	for _, name := range []any{nil, "", long, "a\n"} {
		s.refused("PH004", "select posthorn.subscribe('default', $1, $2, '{}')", group, name)
	}
	s.refused("PH001", "select posthorn.subscribe('nowhere', $1, 'a')", group)
	s.refused("PH004", "insert into posthorn.subscriptions (group_id, params) values ('g', '7')")
	s.refused("PH004", "insert into posthorn.subscriptions (group_id, name, params) values ('g', '', '{}')")
	s.refused("PH004", "insert into posthorn.subscriptions (group_id, params, expiry_interval) values ('g', '{}', '0')")
	equal(t, "subscriptions", column[string](s, "select name from posthorn.subscriptions"), []string{})
}

// A condition of ten thousand bytes is compiled quickly.
func TestLongCondition(t *testing.T) {
	t.Parallel()
	s := database(t)
	condition := "e.type = 'order.placed'"
	for len(condition) < 9950 {
		condition += " and e.type <> 'ü'"
	}
	s.subscribeSQL("a", condition, "{}")
	many := "s.params @> jsonb_build_object('topic', e.topic" + strings.Repeat(", 'x', null", 600) + ")"
	s.refused("PH004", "select posthorn.subscribe('default', $1, 'b', $2::text::jsonb)", group, conditionFilter(many, "{}")) // a function takes 100 arguments
	event := s.publish()
	s.wantHanded(to(event, "a"))
	s.refused("PH004", "select posthorn.subscribe('default', $1, 'a', $2::text::jsonb)", group, conditionFilter(condition+strings.Repeat(" ", 200), "{}"))
}

// Conditions see a payload that jsonb cannot represent as null.
func TestPayloadThatJsonbCannotHold(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.subscribeSQL("any", "true", "{}")
	s.subscribeSQL("payload", "e.payload @> '{\"a\": 1}'", "{}")
	s.subscribeSQL("none", "e.payload is null and e.metadata = '{}'", "{}")
	s.subscribe("filter", `{"payload": {"a": 1}}`)
	s.subscribe("type", `{"type": "b"}`)
	before := s.publishEvent("a", `{"a": 1}`)
	bad := s.publishEvent("b", `{"a": 1, "b": "\ud800"}`)
	after := s.publishEvent("a", `{"a": 1}`)
	all := []string{"any", "filter", "payload"}
	s.wantHanded(to(before, all...), to(bad, "any", "none", "type"), to(after, all...))
	equal(t, "stopped", s.stopped(), []string{})
	if !slices.Contains(column[string](s, "select payload::text from posthorn.events"), `{"a": 1, "b": "\ud800"}`) {
		t.Error("it was changed")
	}
}
