// Package previous_test runs the programs of the last release beside those of this tree: on one database, through its
// migration, in one group and on the jobs of one tag, and over the entries that they leave in brokers and archives.
package previous_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testchild"
	"github.com/posthorn/posthorn/internal/test/testnode"
	"github.com/posthorn/posthorn/internal/test/testprogram"
	"github.com/posthorn/posthorn/internal/test/testsize"
	"github.com/posthorn/posthorn/posthorntest"
)

func TestMain(m *testing.M) { posthorntest.Main(m) }

// version has the programs of one version.
type version struct{ name, posthorn, worker, node string }

func TestPreviousRelease(t *testing.T) {
	if !testsize.All() {
		t.Skip("make test-all builds the programs of the last release")
	}
	root, err := testprogram.Root()
	if err != nil {
		t.Fatal(err)
	}
	tree := checkout(t, root)
	testnode.Dir(t)
	old, this := build(t, "old", tree), build(t, "new", root)

	w := newWorld(t)
	run(t, w.command(old.posthorn, "migrate"))
	w.exec("create table ledger (kind text, id bigint, worker text, primary key (kind, id))")
	surface := w.surface()
	workers := []*worker{w.start(old, "old", false), w.start(old, "old in Node", true)}
	w.works(workers...)
	outlets := w.open(old)
	outlets.write()

	run(t, w.command(this.posthorn, "migrate"))
	w.works(workers...)
	present := w.surface()
	for object, columns := range surface {
		if now := present[object]; !strings.HasPrefix(now+",", columns+",") {
			t.Errorf("%s had %q, and has %q", object, columns, now)
		}
	}
	outlets.write()
	workers = append(workers, w.start(this, "new", false), w.start(this, "new in Node", true))
	w.works(workers...)
	outlets.pass(this)
	outlets.write()
	for _, one := range workers {
		one.stopPublishing()
	}
	w.balances()
	for _, one := range workers {
		one.end()
	}

	outlets.complete()
	outlets.close()
	outlets.readBy(old)
	outlets.readBy(this)
}

var commitLine = regexp.MustCompile(`(?m)^[0-9a-f]{40}$`)

// checkout returns a directory with the tree of the last release.
func checkout(t *testing.T, root string) string {
	t.Helper()
	named, err := os.ReadFile("commit")
	if err != nil {
		t.Fatal(err)
	}
	commit := commitLine.FindString(string(named))
	git := func(args ...string) ([]byte, error) {
		return exec.CommandContext(t.Context(), "git", append([]string{"-C", root}, args...)...).CombinedOutput()
	}
	if _, err := git("cat-file", "-e", commit+"^{commit}"); err != nil {
		t.Skipf("this checkout has no history back to the last release, %s: git fetch --unshallow", commit)
	}
	dir := filepath.Join(t.TempDir(), "release")
	if output, err := git("worktree", "add", "--detach", dir, commit); err != nil {
		t.Fatalf("git worktree: %v\n%s", err, output)
	}
	t.Cleanup(func() {
		if output, err := exec.Command("git", "-C", root, "worktree", "remove", "--force", dir).CombinedOutput(); err != nil {
			t.Errorf("git worktree: %v\n%s", err, output)
		}
	})
	sameHistory(t, root, dir)
	return dir
}

// sameHistory fails the test if a migration of the last release is not one of this tree.
func sameHistory(t *testing.T, root, old string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(old, "schema", "migrations", "*.sql"))
	if err != nil || len(names) == 0 {
		t.Fatal(names, err)
	}
	for _, name := range names {
		was, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		is, err := os.ReadFile(filepath.Join(root, "schema", "migrations", filepath.Base(name)))
		if !bytes.Equal(was, is) {
			t.Fatalf("the last release has another %s: %v", filepath.Base(name), err)
		}
	}
}

// build compiles the programs and the client of a tree.
func build(t *testing.T, name, tree string) version {
	t.Helper()
	root, err := testprogram.Root()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	v := version{name, filepath.Join(dir, "posthorn"), filepath.Join(dir, "worker"), filepath.Join(tree, "clients", "typescript")}
	if tree != root {
		source, err := os.ReadFile("worker/main.go")
		if err != nil {
			t.Fatal(err)
		}
		folder := filepath.Join(tree, "internal", "previous", "worker")
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, "main.go"), source, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(filepath.Join(root, "clients", "typescript", "node_modules"), filepath.Join(v.node, "node_modules")); err != nil {
			t.Fatal(err)
		}
		compile := exec.CommandContext(t.Context(), "npm", "run", "--silent", "build")
		compile.Dir = v.node
		run(t, compile)
	}
	for _, program := range []string{"./cmd/posthorn", "./internal/previous/worker"} {
		compile := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", dir, program)
		compile.Dir = tree
		run(t, compile)
	}
	return v
}

func run(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %v\n%s", cmd.Args, err, output)
	}
}

// end ends a program as operators do.
func end(t *testing.T, child *testchild.Child) {
	t.Helper()
	if err := child.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := child.End(); err != nil {
		t.Errorf("%v: %v", child.Args, err)
	}
}

// world is a database with the programs on it.
type world struct {
	t    *testing.T
	url  string
	conn *pgx.Conn
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, url: posthorntest.EmptyDatabase(t)}
	conn, err := pgx.Connect(t.Context(), w.url)
	if err != nil {
		t.Fatal(err)
	}
	w.conn = conn
	t.Cleanup(func() { conn.Close(t.Context()) })
	return w
}

func (w *world) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "DATABASE_URL="+w.url)
	cmd.Stderr = w.t.Output()
	if args[0] == "migrate" || args[0] == "archive" && (args[1] == "verify" || args[1] == "restore") {
		cmd.Stderr = nil // run shows it
	}
	return cmd
}

func (w *world) exec(statement string) {
	w.t.Helper()
	if _, err := w.conn.Exec(w.t.Context(), statement); err != nil {
		w.t.Fatalf("%s: %v", statement, err)
	}
}

func (w *world) count(query string, args ...any) (n int) {
	w.t.Helper()
	if err := w.conn.QueryRow(w.t.Context(), query, args...).Scan(&n); err != nil {
		w.t.Fatalf("%s: %v", query, err)
	}
	return n
}

func (w *world) texts(query string) []string {
	w.t.Helper()
	rows, _ := w.conn.Query(w.t.Context(), query)
	texts, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		w.t.Fatalf("%s: %v", query, err)
	}
	return texts
}

// surface has the columns of each view, and the arguments of each function, that publishers, consumers or admins may use.
func (w *world) surface() map[string]string {
	w.t.Helper()
	rows, err := w.conn.Query(w.t.Context(), `
		select 'view ' || c.relname, string_agg(attname || ' ' || atttypid::regtype, ',' order by attnum)
		from pg_class c
		join pg_attribute a on attrelid = c.oid and attnum > 0
		where relnamespace = 'posthorn'::regnamespace and relkind = 'v' and has_table_privilege('posthorn_admin', c.oid, 'select')
		group by c.oid, c.relname
		union all
		select 'function ' || proname, string_agg(name || ' ' || type::regtype, ',' order by n)
		from pg_proc p
		cross join lateral unnest(proargnames[1:pronargs], proargtypes::oid[]) with ordinality as arguments (name, type, n)
		where pronamespace = 'posthorn'::regnamespace
		and has_function_privilege('posthorn_admin', p.oid, 'execute')
		and not exists (select from pg_proc o where o.proname = p.proname and o.pronamespace = p.pronamespace and o.oid <> p.oid)
		group by p.oid, proname`)
	if err != nil {
		w.t.Fatal(err)
	}
	surface := map[string]string{}
	var object, columns string
	if _, err := pgx.ForEachRow(rows, []any{&object, &columns}, func() error {
		surface[object] = columns
		return nil
	}); err != nil {
		w.t.Fatal(err)
	}
	if len(surface) < 100 {
		w.t.Fatalf("the surface has only %d objects", len(surface))
	}
	return surface
}

// worker is a process that publishes and handles.
type worker struct {
	*testchild.Child
	t     *testing.T
	name  string
	input io.WriteCloser
}

func (w *world) start(v version, name string, inNode bool) *worker {
	w.t.Helper()
	cmd := w.command(v.worker, name)
	if inNode {
		script, err := filepath.Abs("testdata/worker.mjs")
		if err != nil {
			w.t.Fatal(err)
		}
		cmd = w.command("node", script, filepath.Join(v.node, "dist", "src", "index.js"), name)
	}
	input, err := cmd.StdinPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	return &worker{testchild.StartProgram(w.t, cmd), w.t, name, input}
}

// works waits until each worker has handled more events and jobs, and has published more.
func (w *world) works(workers ...*worker) {
	w.t.Helper()
	done := map[string]string{
		"handled events":   "select count(*) from ledger where kind = 'event' and worker = $1",
		"done jobs":        "select count(*) from ledger where kind = 'job' and worker = $1",
		"published events": "select count(*) from posthorn.events where key = $1",
	}
	for _, one := range workers {
		for what, query := range done {
			before := w.count(query, one.name)
			await.True(w.t, fmt.Sprintf("worker %q has %s", one.name, what), func() bool { return w.count(query, one.name) >= before+10 })
		}
	}
}

func (one *worker) stopPublishing() {
	one.t.Helper()
	if err := one.input.Close(); err != nil {
		one.t.Fatal(err)
	}
	one.Prints("published")
}

func (one *worker) end() {
	one.t.Helper()
	end(one.t, one.Child)
}

// balances waits until each event and each job is in the ledger. Its primary key refuses a second effect, which would be a
// failure of a handler, so there may be no failures either.
func (w *world) balances() {
	w.t.Helper()
	missing := []string{
		"select count(*) from posthorn.events e where not exists (select from ledger l where l.kind = 'event' and l.id = e.id)",
		"select count(*) from posthorn.jobs j where status <> 'COMPLETED' or not exists (select from ledger l where l.kind = 'job' and l.id = j.id)",
	}
	await.True(w.t, "each event and each job has its effect", func() bool {
		return !slices.ContainsFunc(missing, func(query string) bool { return w.count(query) > 0 })
	})
	for what, query := range map[string]string{
		"effects of nothing": "select count(*) from ledger l where kind = 'event' and not exists (select from posthorn.events e where e.id = l.id)",
		"retries":            "select count(*) from posthorn.retries",
		"dead letters":       "select count(*) from posthorn.dead_letters",
	} {
		if n := w.count(query); n > 0 {
			w.t.Errorf("%d %s", n, what)
		}
	}
}
