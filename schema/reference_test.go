package schema_test

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/schema"
)

const referencePage = "../docs/sql.md"

// docs/sql.md must describe the functions, views, tables and settings of a migrated
// database.
func TestReference(t *testing.T) {
	t.Parallel()
	want := reference(t, connect(t, posthorntest.Database(t)))
	if schema.Updating() {
		if err := os.WriteFile(referencePage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(referencePage)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(want, string(got)); diff != "" {
		t.Errorf("docs/sql.md is out of date (-database +page); run: go generate ./schema\n%s", diff)
	}
}

// The page shows the functions that one of the three roles may call, and the views
// that one of them may read.
const (
	functionsQuery = `
		select p.proname::text as name, pg_get_function_arguments(p.oid) as arguments, pg_get_function_result(p.oid) as result,
			regexp_replace(coalesce(obj_description(p.oid, 'pg_proc'), ''), '^[a-z, ]+: ', '') as comment,
			array(select r from unnest(array['publisher', 'consumer', 'admin']) r
				where has_function_privilege('posthorn_' || r, p.oid, 'execute')) as roles,
			pg_get_functiondef(p.oid) as definition,
			p.prorettype <> 'trigger'::regtype and not exists ( -- those over rows of tables are for views
				select from unnest(p.proargtypes) a join pg_type t on t.oid = a join pg_class c on c.oid = t.typrelid) as callable
		from pg_proc p
		where p.pronamespace = 'posthorn'::regnamespace and p.prokind = 'f'
		order by 1, p.pronargdefaults desc, 2`
	relationsQuery = `
		select c.relname::text as name, c.relkind::text as kind, coalesce(obj_description(c.oid, 'pg_class'), '') as comment,
			has_table_privilege('posthorn_consumer', c.oid, 'select') as for_consumers,
			array(select format('%s %s', a.attname, format_type(a.atttypid, a.atttypmod)) from pg_attribute a
				where a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped order by a.attnum) as columns
		from pg_class c
		where c.relnamespace = 'posthorn'::regnamespace and c.relkind in ('r', 'p', 'v', 'c') and not c.relispartition
		order by 1`
)

// owners are functions that only the owner of the schema may call, and that the
// guides name.
var owners = strings.Fields("allow_condition_function disallow_condition_function grant_role")

// helpers are granted only because functions and views call them with the rights of
// the caller.
var helpers = strings.Fields(`as_jsonb check_pattern check_push check_pushed_table drop_push_trigger filtered_events
	has_long_number is_alive is_name job_status listed_events make_push_trigger matches_by_parts now publish_with_care
	push_settings readable relayed_row stream_relays subscribe_with_filter subscribe_with_sql to_json unrelayed_ranges`)

type sqlFunction struct {
	Name, Arguments, Result, Comment string
	Roles                            []string
	Definition                       string
	Callable                         bool
}

type sqlRelation struct {
	Name, Kind, Comment string
	ForConsumers        bool
	Columns             []string
}

type sqlSetting struct{ Key, Value, Description string }

func reference(t *testing.T, conn *pgx.Conn) string {
	functions := rows[sqlFunction](t, conn, functionsQuery)
	relations := rows[sqlRelation](t, conn, relationsQuery)
	settings := rows[sqlSetting](t, conn, "select key, value, description from posthorn.config order by key")
	var b strings.Builder
	b.WriteString(referenceHead)
	byFolder, raised := folders(functions), errorCodes(functions)
	for _, folder := range schema.Folders() {
		public := slices.DeleteFunc(byFolder[folder], func(overloads []sqlFunction) bool { return !isPublic(overloads[0]) })
		if len(public) > 0 {
			fmt.Fprintf(&b, "\n## Functions: %s\n", path.Base(folder))
		}
		for _, overloads := range public {
			writeFunction(&b, overloads, slices.Sorted(maps.Keys(raised[overloads[0].Name])))
		}
	}
	writeRelations(&b, relations, b.String())
	b.WriteString("\n## Settings\n\nThe rows of `posthorn.config`.\n\n| key | at first | meaning |\n|---|---|---|\n")
	for _, s := range settings {
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", s.Key, s.Value, s.Description)
	}
	return b.String()
}

func isPublic(f sqlFunction) bool {
	return len(f.Roles) > 0 && f.Callable && !slices.Contains(helpers, f.Name) || slices.Contains(owners, f.Name)
}

const referenceHead = `# SQL reference

Made from a database by ` + "`go generate ./schema`" + `: do not edit this page.

It has the functions of schema ` + "`posthorn`" + ` that programs call, by folder of ` + "`schema/functions`" + `; then views, types, tables
and settings. Members of ` + "`posthorn_admin`" + ` may use all of it; "also for" names the other [roles](operations.md#roles) that may.
Names of arguments are part of the interface: ` + "`select posthorn.publish('default', 'order.placed', key => '7')`" + `.

Errors are SQLSTATEs: ` + "`PH001` not found, `PH002` conflict, `PH003` lease lost, `PH004` invalid argument, `PH005` refused, `PH008` moved" + `.
The list of a function includes errors of the functions that it calls.
`

func rows[T any](t *testing.T, conn *pgx.Conn, query string) []T {
	t.Helper()
	result, err := conn.Query(t.Context(), query)
	if err != nil {
		t.Fatal(err)
	}
	all, err := pgx.CollectRows(result, pgx.RowToStructByPos[T])
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var createdFunction = regexp.MustCompile(`(?m)^create or replace function posthorn\.(\w+)`)

// folders returns the functions by the folder of schema/functions that creates them.
// Functions of migrations, which upgrades do not replace, count as part of the log.
func folders(functions []sqlFunction) map[string][][]sqlFunction {
	folderOf := map[string]string{}
	for _, step := range schema.Functions() {
		for _, match := range createdFunction.FindAllStringSubmatch(step.SQL, -1) {
			folderOf[match[1]] = schema.Folder(step)
		}
	}
	byFolder := map[string][][]sqlFunction{}
	for len(functions) > 0 {
		n := 1
		for n < len(functions) && functions[n].Name == functions[0].Name {
			n++
		}
		folder := cmp.Or(folderOf[functions[0].Name], "core/log")
		byFolder[folder], functions = append(byFolder[folder], functions[:n]), functions[n:]
	}
	return byFolder
}

var (
	raisedCode = regexp.MustCompile(`'(PH\d{3})'`)
	sqlComment = regexp.MustCompile(`--.*`)
	sqlText    = regexp.MustCompile(`'[^']*'`)
	calledName = regexp.MustCompile(`posthorn\.(\w+)\(`)
)

// errorCodes returns, by function name, the SQLSTATEs in the function and in the
// functions that it calls. Texts in quotes are left out, because hints name functions
// too.
func errorCodes(functions []sqlFunction) map[string]map[string]bool {
	codes, calls := map[string]map[string]bool{}, map[string][]string{}
	for _, f := range functions {
		if codes[f.Name] == nil {
			codes[f.Name] = map[string]bool{}
		}
		body := sqlComment.ReplaceAllString(f.Definition, "")
		for _, match := range raisedCode.FindAllStringSubmatch(body, -1) {
			codes[f.Name][match[1]] = true
		}
		for _, match := range calledName.FindAllStringSubmatch(sqlText.ReplaceAllString(body, "''"), -1) {
			calls[f.Name] = append(calls[f.Name], match[1])
		}
	}
	for changed := true; changed; {
		changed = false
		for caller, callees := range calls {
			before := len(codes[caller])
			for _, callee := range callees {
				maps.Copy(codes[caller], codes[callee])
			}
			changed = changed || len(codes[caller]) > before
		}
	}
	return codes
}

// writeFunction describes the functions that share a name. The first one has the most
// defaults.
func writeFunction(b *strings.Builder, overloads []sqlFunction, codes []string) {
	f := overloads[0]
	fmt.Fprintf(b, "\n### %s\n\n```\n%s\n```\n\n%s", f.Name,
		wrapped(f.Name+"("+shortened(f.Arguments)+") → "+shortened(f.Result)), f.Comment)
	if len(overloads) > 1 {
		fmt.Fprintf(b, " The same with %s.", strings.Join(differences(overloads), ", with "))
	}
	if len(codes) > 0 {
		fmt.Fprintf(b, " Errors: %s.", strings.Join(codes, ", "))
	}
	if len(f.Roles) == 0 {
		b.WriteString(" Only for the owner of the schema.")
	}
	if others := slices.DeleteFunc(f.Roles, func(role string) bool { return role == "admin" }); len(others) > 0 {
		fmt.Fprintf(b, " Also for: %s.", strings.Join(others, ", "))
	}
	b.WriteString("\n")
}

var defaultValue = regexp.MustCompile(` DEFAULT .*`)

// differences returns, for each further function, the arguments whose types differ
// from those of the first.
func differences(overloads []sqlFunction) []string {
	var all []string
	known := map[string]bool{}
	for i, f := range overloads {
		var others []string
		for argument := range strings.SplitSeq(f.Arguments, ", ") {
			argument = defaultValue.ReplaceAllString(argument, "")
			if i == 0 {
				known[argument] = true
			} else if !known[argument] {
				others = append(others, "`"+argument+"`")
			}
		}
		switch {
		case i == 0:
		case !slices.ContainsFunc(others, func(o string) bool { return !strings.HasPrefix(o, "`p_") }): // as in an older system
			all = append(all, "names that begin with `p_`")
		default:
			all = append(all, strings.Join(others, " and "))
		}
	}
	return all
}

// shortening writes types and defaults in their usual short form.
var shortening = []struct {
	long  *regexp.Regexp
	short string
}{
	{regexp.MustCompile(`timestamp with time zone`), "timestamptz"},
	{regexp.MustCompile(`\binteger\b`), "int"},
	{regexp.MustCompile(`double precision`), "float8"},
	{regexp.MustCompile(`posthorn\.`), ""},
	{regexp.MustCompile(`SETOF `), "setof "},
	{regexp.MustCompile(`TABLE\(`), "table ("},
	{regexp.MustCompile(`INOUT `), "inout "},
	{regexp.MustCompile(`OUT `), "out "},
	{regexp.MustCompile(` DEFAULT (NULL|'[^']*')::[a-z0-9]+(\[\])?`), " = $1"},
	{regexp.MustCompile(` DEFAULT `), " = "},
	{regexp.MustCompile(` = NULL`), " = null"},
}

func shortened(text string) string {
	for _, s := range shortening {
		text = s.long.ReplaceAllString(text, s.short)
	}
	return text
}

// wrapped breaks a line after commas to fit the page.
func wrapped(signature string) string {
	const width = 110
	var b strings.Builder
	line := ""
	for _, part := range strings.SplitAfter(signature, ", ") {
		if line != "" && len(line)+len(part) > width {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line = "    "
		}
		line += part
	}
	return b.String() + line
}

// writeRelations writes the columns' types only of relations that a function on the
// page returns.
func writeRelations(b *strings.Builder, relations []sqlRelation, functions string) {
	b.WriteString("\n## Views\n")
	for _, view := range ofKind(relations, "v") {
		fmt.Fprintf(b, "\n### posthorn.%s\n\n```\n%s\n```\n\n%s", view.Name, wrapped(shortened(strings.Join(view.Columns, ", "))), view.Comment)
		if view.ForConsumers {
			b.WriteString(" Also for: consumer.")
		}
		b.WriteString("\n")
	}
	b.WriteString("\n## Types that functions return\n")
	for _, composite := range ofKind(relations, "crp") {
		if regexp.MustCompile(`→ (setof )?` + composite.Name + `\n`).MatchString(functions) {
			fmt.Fprintf(b, "\n### Type %s\n\n```\n%s\n```\n", composite.Name, wrapped(shortened(strings.Join(composite.Columns, ", "))))
		}
	}
	b.WriteString("\n## Tables\n\nOnly functions write to them, except where a guide says otherwise.\n\n| table | holds |\n|---|---|\n")
	for _, table := range ofKind(relations, "rp") {
		fmt.Fprintf(b, "| `%s` | %s |\n", table.Name, table.Comment)
	}
}

func ofKind(relations []sqlRelation, kinds string) []sqlRelation {
	return slices.DeleteFunc(slices.Clone(relations), func(r sqlRelation) bool { return !strings.Contains(kinds, r.Kind) })
}
