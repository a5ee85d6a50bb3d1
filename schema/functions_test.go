package schema_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/schema"
)

// Migrate does not check function bodies, since one may use a function of a later
// file. Here all functions exist.
func TestFunctionBodies(t *testing.T) {
	t.Parallel()
	conn := connect(t, posthorntest.Database(t))
	run(t, conn, "set check_function_bodies = on; set search_path = ''")
	for _, f := range schema.Functions() {
		if _, err := conn.Exec(t.Context(), f.SQL); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
	}
}

// A folder that is missing in the order must be an error.
func TestFunctionFolders(t *testing.T) {
	t.Parallel()
	names := []string{
		"functions/core/log/b.sql", "functions/core/group/a.sql",
		"functions/face/admin/z.sql", "functions/face/admin/roles.sql", "functions/face/admin/install.sql",
	}
	fsys := small(1, 42)
	delete(fsys, "functions/core/log/answer.sql")
	for _, name := range names {
		fsys[name] = file("select 1;")
	}
	var got []string
	for _, step := range schema.Load(t, fsys).Functions() {
		got = append(got, step.Name)
	}
	if diff := cmp.Diff(names, got); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
	fsys["functions/core/elsewhere/c.sql"] = file("select 1;")
	if err := schema.LoadError(fsys); err == nil || !strings.Contains(err.Error(), "functions/core/elsewhere/c.sql") {
		t.Errorf("error = %v, want one that names the file", err)
	}
}

// Each folder has a map of its tables and functions, which names what exists. Each table and
// view is on a map.
func TestMapsNameWhatExists(t *testing.T) {
	t.Parallel()
	conn := connect(t, posthorntest.Database(t))
	type object struct {
		Name       string
		IsRelation bool
	}
	exists, relations := map[string]bool{}, map[string]bool{}
	for _, o := range rows[object](t, conn, `
		select proname::text, false from pg_proc where pronamespace = 'posthorn'::regnamespace
		union select relname::text, relkind <> 'S' from pg_class where relnamespace = 'posthorn'::regnamespace and relkind in ('r', 'p', 'v', 'S') and not relispartition`) {
		exists[o.Name] = true
		if o.IsRelation {
			relations[o.Name] = true
		}
	}
	name := regexp.MustCompile(`[a-z]+(_[a-z0-9]+)*`)
	mapped := map[string]bool{}
	for _, f := range schema.Functions() {
		if !strings.HasSuffix(f.Name, "/map.sql") {
			continue
		}
		mapped[schema.Folder(f)] = true
		_, tables, _ := strings.Cut(f.SQL, "-- Tables")
		tables, _, _ = strings.Cut(tables, "-- Flow")
		for _, word := range name.FindAllString(tables, -1) {
			delete(relations, word)
		}
		for _, word := range name.FindAllString(f.SQL, -1) {
			if strings.Contains(word, "_") && !exists[word] && word != "posthorn_condition" {
				t.Errorf("%s names %s, which does not exist", f.Name, word)
			}
		}
	}
	for _, folder := range schema.Folders() {
		if !mapped[folder] {
			t.Errorf("schema/functions/%s has no map.sql", folder)
		}
	}
	for relation := range relations {
		t.Errorf("%s is on no map", relation)
	}
}

// The comment of a function begins with the roles that may execute it, spelt as grant_role reads
// them, or the function is for the owner or a trigger.
func TestCommentsBeginWithRoles(t *testing.T) {
	t.Parallel()
	type function struct{ Name, Comment string }
	roles := regexp.MustCompile(`^(publisher|consumer|publisher, consumer|admin): \S`)
	granted := 0
	for _, f := range rows[function](t, connect(t, posthorntest.Database(t)), `
		select p.proname::text, obj_description(p.oid, 'pg_proc') from pg_proc p
		where p.pronamespace = 'posthorn'::regnamespace and obj_description(p.oid, 'pg_proc') is not null`) {
		if roles.MatchString(f.Comment) {
			granted++
		} else if !slices.Contains(owners, f.Name) && !strings.HasPrefix(f.Comment, "Trigger: ") && f.Name != "cause_of" {
			t.Errorf("%s is for nobody: %s", f.Name, f.Comment)
		}
	}
	if granted < 250 {
		t.Errorf("only %d functions are for a role", granted)
	}
}

// A plan with a node that is disabled looks so expensive that Postgres would compile it,
// which takes hundreds of milliseconds.
func TestFunctionsWithoutScansAreNotCompiled(t *testing.T) {
	t.Parallel()
	conn := connect(t, posthorntest.Database(t))
	rows, _ := conn.Query(t.Context(), `
		select p.oid::regprocedure::text from pg_proc p
		where p.pronamespace = 'posthorn'::regnamespace and p.proconfig::text ~ 'enable_[a-z]+=off' and 'jit=off' <> all (p.proconfig)`)
	compiled, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	if len(compiled) > 0 {
		t.Errorf("%d functions lack \"set jit = off\": %s", len(compiled), strings.Join(compiled, ", "))
	}
}

// besideForeignCode are functions that run after code of users in the same call: that code may
// have changed the search_path, for good.
var besideForeignCode = strings.Fields(`check_condition begin_condition_check read_condition is_enclosed sql_tokens tree_nodes not_allowed is_simple_pattern
	bare lookup_keys split_sql match_events is_asked_for matching_functions run_matching match_with_care match_by_halves
	ids_with_condition merge_matches bury_misfits run_of_misfits own_slots`)

// Functions run what their text names, whatever the session's search_path is: first those that
// the session, a trigger, a view or an index calls, and those with other rights than the caller.
// They set a search_path, which the functions that they call have too. So those set none: it
// would cost more than many of them do.
func TestFunctionsThatAreCalledFirstSetASearchPath(t *testing.T) {
	t.Parallel()
	type function struct {
		Name         string
		First, Sets  bool
		BoundAlready bool // its text was read when it was created
		Calls        []string
	}
	all := rows[function](t, connect(t, posthorntest.Database(t)), `
		select p.proname::text,
			p.prosecdef or p.prorettype = 'trigger'::regtype
				or exists (select from unnest(array['publisher', 'consumer', 'admin']) r where has_function_privilege('posthorn_' || r, p.oid, 'execute'))
				or exists (select from pg_depend d where d.refclassid = 'pg_proc'::regclass and d.refobjid = p.oid and d.classid <> 'pg_proc'::regclass),
			coalesce(array_to_string(p.proconfig, ' ') ~ 'search_path=pg_catalog, pg_temp', false),
			p.prosqlbody is not null,
			array(select m[1] from regexp_matches(pg_get_functiondef(p.oid), 'posthorn\.(\w+)\(', 'g') m)
		from pg_proc p where p.pronamespace = 'posthorn'::regnamespace`)
	withoutPath := []string{"publish", "event_of"} // publish names every schema; the planner inlines event_of
	byName := map[string][]function{}
	var reached []function // those that run under the session's search_path
	for _, f := range all {
		byName[f.Name] = append(byName[f.Name], f)
		first := f.First || slices.Contains(owners, f.Name)
		switch {
		case first && !f.Sets && !f.BoundAlready && !slices.Contains(withoutPath, f.Name):
			t.Errorf("%s sets no search_path", f.Name)
		case !first && f.Sets && !slices.Contains(besideForeignCode, f.Name):
			t.Errorf("%s sets a search_path, which its callers have set already", f.Name)
		case !f.Sets && slices.Contains(besideForeignCode, f.Name):
			t.Errorf("%s sets no search_path, and runs after code of users", f.Name)
		case first && !f.Sets:
			reached = append(reached, f)
		}
	}
	for seen := map[string]bool{}; len(reached) > 0; {
		f := reached[0]
		if reached = reached[1:]; seen[f.Name] {
			continue
		}
		seen[f.Name] = true
		for _, name := range f.Calls {
			for _, called := range byName[name] {
				switch {
				case called.BoundAlready:
					reached = append(reached, called)
				case !called.First && !called.Sets:
					t.Errorf("%s calls %s, and neither sets a search_path", f.Name, name)
				}
			}
		}
	}
}

// Each kind of thing has a class of advisory locks of its own, which has a name.
func TestLockClassesAreNamedOnce(t *testing.T) {
	t.Parallel()
	named, numbered := regexp.MustCompile(`lock_class\('([a-z ]+)'\)`), regexp.MustCompile(`\b18863504\d\d`)
	class := regexp.MustCompile(`when '([a-z ]+)' then (\d+)`)
	var names, numbers, used []string
	for _, f := range schema.Functions() {
		if f.Name == "functions/core/base/lock_class.sql" {
			for _, c := range class.FindAllStringSubmatch(f.SQL, -1) {
				names, numbers = append(names, c[1]), append(numbers, c[2])
			}
			continue
		}
		if n := numbered.FindString(f.SQL); n != "" {
			t.Errorf("%s has the class %s without its name", f.Name, n)
		}
		for _, c := range named.FindAllStringSubmatch(f.SQL, -1) {
			used = append(used, c[1])
		}
	}
	slices.Sort(numbers)
	if len(slices.Compact(numbers)) != len(names) {
		t.Errorf("two kinds of things share a class: %v", names)
	}
	slices.Sort(used)
	slices.Sort(names)
	if diff := cmp.Diff(names, slices.Compact(used)); diff != "" {
		t.Errorf("used classes (-named +used):\n%s", diff)
	}
}

// Each statement of each plpgsql function is analysed: a name that could be a column or a variable is an error, which
// Postgres itself raises only when the statement runs. The extension is that of the Debian package plpgsql-check.
func TestStatementsOfFunctions(t *testing.T) {
	t.Parallel()
	conn := connect(t, posthorntest.Database(t))
	var installed bool
	if err := conn.QueryRow(t.Context(), "select exists (select from pg_available_extensions where name = 'plpgsql_check')").Scan(&installed); err != nil {
		t.Fatal(err)
	}
	if !installed {
		t.Skip("the extension plpgsql_check is not installed")
	}
	run(t, conn, "create extension plpgsql_check schema public; set search_path = pg_catalog, pg_temp")
	rows, err := conn.Query(t.Context(), `
		select f.oid::regprocedure || ', line ' || c.lineno || ': ' || c.message
		from pg_proc f
		join pg_language l on l.oid = f.prolang and l.lanname = 'plpgsql'
		left join pg_trigger g on g.tgfoid = f.oid and g.tgparentid = 0
		cross join public.plpgsql_check_function_tb(f.oid, coalesce(g.tgrelid, 0), oldtable => g.tgoldtable, newtable => g.tgnewtable, fatal_errors => false, other_warnings => false, extra_warnings => false) c
		where f.pronamespace = 'posthorn'::regnamespace and (f.prorettype <> 'trigger'::regtype or g.oid is not null)
			and c.level = 'error'
			and c.message !~ 'schema "cron"|posthorn.as_condition_role|posthorn.checked_condition' -- which few databases have
		order by 1`)
	if err != nil {
		t.Fatal(err)
	}
	wrong, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	for _, message := range wrong {
		t.Error(message)
	}
}
