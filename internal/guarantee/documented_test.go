package guarantee

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// documented gives the role for each statement of a page that names an object of
// Posthorn: p for the publisher, c for the consumer, a for the admin, o for the owner
// of the schema. All other statements, such as begin and create table, run as the
// owner. Spaces have no meaning.
var documented = map[string]struct{ roles, before string }{
	"README.md":           {roles: "p ccc"},
	"access.md":           {roles: "a a"},
	"archive.md":          {roles: "a"},
	"coming-from-jobs.md": {roles: "o o o pcc", before: otherSystems},                                        // they delete from tables of others
	"coming-from.md":      {roles: "oo o oo o", before: otherSystems},                                        // they delete from tables of others
	"first-steps.md":      {roles: "pp ccccc", before: "select posthorn.publish('default', 'order.placed')"}, // the page publishes over HTTP
	"groups.md":           {roles: "c c a c"},
	"jobs.md":             {roles: "p ccc cc aa a a a"},
	"read.md":             {roles: "c"},
	"nodes.md":            {roles: "ccc c c c"},
	"observe.md":          {roles: "c pc"},
	"operations.md":       {roles: "aaaa aaa a o o", before: "begin"}, // never committed: it creates a role of the cluster
	"project.md":          {roles: "a", before: "create table totals (customer text); select posthorn.define_projection('default', 'totals')"},
	"publish.md":          {roles: "p", before: "select posthorn.define_namespace('shop')"},
	"scale.md":            {roles: "a a a a a", before: "select posthorn.define_namespace('shop')"},
	"schedule.md":         {roles: "p pp p aaapa"},
	"subscribe.md":        {roles: "cc a o p c a"},
	"table-changes.md":    {roles: "oc aoao o"}, // as an admin who owns the table: TestWritersNeedNoRightToPublish
	"webhooks.md":         {roles: "aa"},
	"workflows.md":        {roles: "p ccc c c c p c c c c c", before: "create table bookings (order_id text, cents int)"},
}

var (
	sqlBlock     = regexp.MustCompile("(?ms)^```sql\n(.*?)^```$")
	statementEnd = regexp.MustCompile(`(?m);[ \t]*(--.*)?$`)
	roleOf       = map[rune]string{'p': "posthorn_publisher", 'c': "posthorn_consumer", 'a': "posthorn_admin", 'o': "none"}
)

// The statements in the guides work for the roles that they are meant for.
func TestDocumentedStatementsAreGranted(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("pages %v, %v", pages, err)
	}
	tried := 0
	for _, page := range append(pages, "../../README.md") {
		name := filepath.Base(page)
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		blocks := sqlBlock.FindAllStringSubmatch(string(text), -1)
		if len(blocks) == 0 {
			continue
		}
		tried++
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.exec("set search_path = public")
			if before := documented[name].before; before != "" {
				s.exec(before)
			}
			roles := []rune(strings.ReplaceAll(documented[name].roles, " ", ""))
			for _, block := range blocks {
				for _, statement := range statementEnd.Split(block[1], -1) {
					if strings.TrimSpace(statement) == "" {
						continue
					}
					role := 'o'
					if strings.Contains(statement, "posthorn.") {
						if len(roles) == 0 {
							t.Fatalf("say in documented as which role this is run:\n%s", statement)
						}
						role, roles = roles[0], roles[1:]
					}
					s.exec("set role " + roleOf[role])
					s.exec(statement)
					s.exec("reset role")
				}
			}
			if len(roles) > 0 {
				t.Errorf("documented has %d roles too many", len(roles))
			}
		})
	}
	if tried != len(documented) {
		t.Errorf("%d pages have statements, and documented has %d", tried, len(documented))
	}
}

// Admins may change every setting.
func TestAdminsMayChangeSettings(t *testing.T) {
	t.Parallel()
	s := database(t)
	keys := column[string](s, "select key from posthorn.config")
	s.exec("set role posthorn_admin")
	for _, key := range keys {
		s.exec("update posthorn.config set value = value where key = $1", key)
	}
	s.refused("PH004", "update posthorn.config set value = 'never' where key = 'partition_interval'")
}

var calledFunction = regexp.MustCompile(`posthorn\.([a-z_]+)\(`)

// Programs call only functions that an admin may call, besides those for the owner of the
// schema.
func TestProgramsCallWhatAdminsMayCall(t *testing.T) {
	t.Parallel()
	s := database(t)
	calls := map[string]string{} // files, by function
	for _, pattern := range []string{"../pg/*.go", "../../admin/*.go", "../../*.go", "../../server/*.go", "../../archive/*.go", "../*/*.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("files %v, %v", files, err)
		}
		for _, file := range files {
			code, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, call := range calledFunction.FindAllStringSubmatch(string(code), -1) {
				if !strings.HasSuffix(file, "_test.go") && !isTestHelper(file) {
					calls[call[1]] = file
				}
			}
		}
	}
	delete(calls, "grant_role") // the advice to owners
	for function, file := range calls {
		refused := value[int](s, `select count(*) from pg_proc where pronamespace = 'posthorn'::regnamespace and proname = $1
			and not has_function_privilege('posthorn_admin', oid, 'execute')`, function)
		if refused > 0 {
			t.Errorf("%s calls %s, which posthorn_admin may not", file, function)
		}
	}
	if len(calls) < 100 {
		t.Errorf("found only %d functions; the calls have changed", len(calls))
	}
}

// isTestHelper reports whether a file belongs to a package that only tests use.
func isTestHelper(file string) bool {
	return strings.HasPrefix(filepath.Base(filepath.Dir(file)), "test") || slices.Contains([]string{"torture", "mutants", "await", "schedule", "schedules", "promise", "scenarios"}, filepath.Base(filepath.Dir(file)))
}
