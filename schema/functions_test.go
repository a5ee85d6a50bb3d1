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
		"functions/log/b.sql", "functions/group/a.sql",
		"functions/admin/z.sql", "functions/admin/roles.sql", "functions/admin/install.sql",
	}
	fsys := small(1, 42)
	delete(fsys, "functions/log/answer.sql")
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
	fsys["functions/elsewhere/c.sql"] = file("select 1;")
	if err := schema.LoadError(fsys); err == nil || !strings.Contains(err.Error(), "functions/elsewhere/c.sql") {
		t.Errorf("error = %v, want one that names the file", err)
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

// Each kind of thing has a class of advisory locks of its own, which has a name.
func TestLockClassesAreNamedOnce(t *testing.T) {
	t.Parallel()
	named, numbered := regexp.MustCompile(`lock_class\('([a-z ]+)'\)`), regexp.MustCompile(`\b18863504\d\d`)
	class := regexp.MustCompile(`when '([a-z ]+)' then (\d+)`)
	var names, numbers, used []string
	for _, f := range schema.Functions() {
		if f.Name == "functions/log/lock_class.sql" {
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
