package guarantee

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// hostile texts have an effect, or fail in an unexpected way, where they become part
// of SQL, of a format or of a pattern.
var hostile = []string{
	`'; drop table public.canary; --`,
	`"; drop table public.canary; --`,
	`$$; drop table public.canary; $$`,
	`$sql$; drop table public.canary; $sql$`,
	`\'; drop table public.canary; --`,
	`' || (delete from public.canary) || '`,
	`%s %I %L %n %1$s %`,
	`{"a`,
	`{'"; drop table public.canary; --"'}`,
	`default' or '1' = '1`,
}

// harmless values, by the type and name of an argument.
var harmless = map[string]string{
	"text namespace": "'default'", "text group_name": "'billing'", "text name": "'billing'", "text type": "'e'", "text stream": "'default'",
	"text node": "'w'", "text key": "null", "text dedup_key": "null", "text payload": "'{}'", "text metadata": "'{}'", "text kind": "'consumer'",
	"text cursor": "posthorn.cursor_at('infinity')", "name role_name": "current_user", "text value": "'1 day'", "text ordering": "'key'",
	"text cron_expression": "'@daily'", "text timezone": "'UTC'", "text zone": "'UTC'", "text catch_up": "'once'", "text event_type": "'e'",
	"timestamp without time zone": "'2026-01-01'", "boolean enabled": "false",
	"text": "'x'", "integer": "1", "bigint": "1", "boolean": "true", "interval": "'1 second'", "timestamp with time zone": "posthorn.now()",
	"json": "'{}'", "jsonb": "'{}'", "jsonb messages": "'[]'", "jsonb failures": "'[]'", "text[]": "'{}'", "json[]": "'{}'", "uuid": "gen_random_uuid()",
	"bigint[]": "'{}'", "xid8": "'3'", "pg_snapshot": "'3:3:'", "double precision": "1", "name": "current_user", "regclass": "'posthorn.events_default'",
	`regclass "table"`: "'public.canary'", "regprocedure": "null", "text settings": "'{}'", "jsonb settings": "'{}'", "text operation": "'insert'",
}

// sqlByDefinition are the functions that take SQL as an argument: they create the
// functions of a condition that was checked before. TestSQLFunctionsAreGrantedToNoRole
// checks that no role may call them.
var sqlByDefinition = map[string]string{
	"make_condition_function": "the body of a function",
	"lookup_keys":             "the arguments of a call",
	"give_to_condition_role":  "the signature of a function",
	"make_refused_condition":  "makes a function",
	"join_by_keys":            "expressions",
	"run_matching":            "a query",
	"match_with_care":         "a query",
	"match_by_halves":         "a query",
}

// function is one of Posthorn's functions, with its arguments as "type name".
type function struct {
	name      string
	arguments []string
	variadic  bool // the last argument
}

func functions(s *session) []function {
	s.t.Helper()
	rows, _ := s.conn.Query(s.t.Context(), `
		select p.proname, array(
			select format_type(t, null) || ' ' || coalesce(quote_ident(p.proargnames[i]), '')
			from unnest(p.proargtypes) with ordinality a (t, i) order by i), p.provariadic <> 0
		from pg_proc p
		where p.pronamespace = 'posthorn'::regnamespace and p.prokind = 'f' and p.prorettype <> 'trigger'::regtype
		order by 1, 2`)
	var all []function
	var f function
	if _, err := pgx.ForEachRow(rows, []any{&f.name, &f.arguments, &f.variadic}, func() error {
		all = append(all, f)
		return nil
	}); err != nil {
		s.t.Fatal(err)
	}
	return all
}

// calls returns calls with hostile text in one argument at a time, for each argument
// that takes text. Functions that take whole rows are internal.
func (f function) calls() []string {
	values := make([]string, len(f.arguments))
	for i, argument := range f.arguments {
		kind, name, _ := cutLast(argument)
		value, ok := harmless[argument]
		if !ok {
			value, ok = harmless[kind]
		}
		if !ok {
			return nil
		}
		values[i] = f.passed(i, name, value, kind)
	}
	var calls []string
	for i, argument := range f.arguments {
		kind, name, _ := cutLast(argument)
		for _, literal := range literals(kind) {
			old := values[i]
			values[i] = f.passed(i, name, literal, kind)
			calls = append(calls, "select posthorn."+f.name+"("+strings.Join(values, ", ")+")")
			values[i] = old
		}
	}
	return calls
}

// passed returns argument i of a call.
func (f function) passed(i int, name, value, kind string) string {
	if f.variadic && i == len(f.arguments)-1 {
		name = "variadic " + name
	}
	return name + " => " + value + "::" + kind
}

func cutLast(argument string) (kind, name string, ok bool) {
	i := strings.LastIndexByte(argument, ' ')
	return argument[:i], argument[i+1:], i >= 0
}

// escape ends every kind of SQL literal and begins another one. So the statement that
// contains it does not parse: in a string with or without backslash escapes, with
// quotes doubled or not, in an identifier, in a dollar-quoted body, in a format or a
// pattern, or outside of a literal.
const escape = `x\' " $$ $sql$ $body$ $function$ ( %q \`

// literals returns values of a type that contain hostile text: as the whole value, or
// as any part of a JSON document that one of our functions reads.
func literals(kind string) []string {
	hidden, err := json.Marshal(escape)
	if err != nil {
		panic(err) // cannot fail for a string
	}
	var texts []string
	switch kind {
	case "text", "name":
		texts = []string{escape, hostile[0], hostile[len(hostile)-1]}
	case "text[]":
		return []string{"array[" + quote(escape) + "]", quote(escape)}
	case "json[]":
		return []string{"array[" + quote(string(hidden)) + "]::json[]"}
	case "json", "jsonb":
		texts = []string{string(hidden), fmt.Sprintf(`{%s: %[1]s}`, hidden), fmt.Sprintf(`[%s]`, hidden), fmt.Sprintf(`[{%s: %[1]s}]`, hidden)}
		for _, field := range []string{
			"order", "slots", "attempts", "delays", "backoff", "on_failure", "read_ahead", "start",
			"ids", "event", "type", "stream", "subscription", "reason", "error", "failed_before", "failed_after", "limit", "offset",
			"conditions_sql", "key", "tags_any", "tags_all", "payload", "expiry_interval",
		} {
			texts = append(texts, fmt.Sprintf(`{%q: %s}`, field, hidden))
		}
		for _, field := range []string{"delays", "ids", "type", "stream", "key", "tags_any", "tags_all"} {
			texts = append(texts, fmt.Sprintf(`{%q: [%s]}`, field, hidden))
		}
		for _, field := range []string{"type", "payload", "stream", "key", "tags", "metadata", "deliver_at", "dedup_key", "event", "retry_in", "reason", "name", "patterns"} {
			texts = append(texts, fmt.Sprintf(`[{"type": "e", %q: %s}]`, field, hidden))
		}
	}
	for i, text := range texts {
		texts[i] = quote(text)
	}
	return texts
}

func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }

// attempt makes calls on the server, rolls each of them back, and reports the calls
// with another result than success or an error about a value.
const attempt = `
create function public.attempt(calls text[]) returns setof text language plpgsql as $$
declare
	call text;
	found text;
begin
	foreach call in array calls loop
		begin
			execute call;
			execute 'select format(''%s canaries'', count(*)) from public.canary' into found;
			raise exception using errcode = 'UNDO0';
		exception
			when sqlstate 'UNDO0' then
				if found <> '1 canaries' then
					return next call || ': ' || found;
				end if;
			when others then
				if not public.is_about_a_value(sqlstate, sqlerrm) then
					return next format('%s: %s (SQLSTATE %s)', call, sqlerrm, sqlstate);
				end if;
		end;
	end loop;
end $$;

-- Ours, invalid data, a constraint, no role of that name, or no name at all. The
-- errors of a text that has become a format or a pattern are invalid data too.
create function public.is_about_a_value(code text, message text) returns boolean language sql
return (code like 'PH%' or code like '22%' or code like '23%' or code in ('42704', '42602'))
	and code not in ('2201B', '22025') and message not like '%format()%';`

// Every argument of every function is data: a call with any text succeeds, or fails
// with one of Posthorn's errors or an error about a value.
func TestNoArgumentIsSQL(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.bury("e")
	s.subscribe("x", "{}")
	s.exec("create table public.canary as select 1 as alive")
	s.exec(attempt)
	tried := 0
	for _, f := range functions(s) {
		if sqlByDefinition[f.name] != "" {
			continue
		}
		calls := f.calls()
		if len(calls) == 0 {
			continue
		}
		tried += len(calls)
		for _, outcome := range column[string](s, "select public.attempt($1)", calls) {
			t.Error(outcome)
		}
	}
	if tried < 1000 {
		t.Errorf("only %d calls were tried", tried)
	}
}

func TestSQLFunctionsAreGrantedToNoRole(t *testing.T) {
	t.Parallel()
	s := database(t)
	for name := range sqlByDefinition {
		equal(t, "roles that may call "+name, column[string](s, `
			select r.rolname from pg_proc p
			cross join pg_roles r
			where p.pronamespace = 'posthorn'::regnamespace and p.proname = $1
				and r.rolname ~ '^posthorn_(publisher|consumer|admin|condition)$' and has_function_privilege(r.oid, p.oid, 'execute')`, name), []string{})
		equal(t, "functions of the name "+name, value[int](s, "select count(*) from pg_proc where pronamespace = 'posthorn'::regnamespace and proname = $1", name), 1)
	}
}

// Texts are returned as they were published.
func TestHostileTextsArePublishedAsTheyAre(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	type message struct {
		Type, Key, Stream, Payload, Metadata string
		Tags                                 []string
	}
	var want, got []message
	for _, text := range hostile {
		quoted, err := json.Marshal(map[string]string{text: text})
		if err != nil {
			t.Fatal(err)
		}
		m := message{text, text, text, string(quoted), string(quoted), []string{text}}
		want = append(want, m)
		s.exec("select posthorn.publish('default', $1, $2::text, stream => $3, key => $4, tags => $5, metadata => $6::text::json, dedup_key => $1)",
			m.Type, m.Payload, m.Stream, m.Key, m.Tags, m.Metadata)
	}
	rows, _ := s.conn.Query(t.Context(), "select type, key, stream, payload::text, metadata::text, tags from posthorn.claim('default', $1, $2)", group, hostile[0])
	var m message
	if _, err := pgx.ForEachRow(rows, []any{&m.Type, &m.Key, &m.Stream, &m.Payload, &m.Metadata, &m.Tags}, func() error {
		got = append(got, m)
		m.Tags = nil
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	equal(t, "messages", got, want)
}
