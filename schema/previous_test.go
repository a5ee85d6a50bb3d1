package schema_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/schema"
)

// Postgres neither renames arguments of a function nor changes its result, and one with a new argument stands beside the old
// one: give it another name, or drop the old one in a migration if no program calls it. And a migration runs with the
// functions of the last release, such as triggers. All this goes unnoticed until a database of the last release is upgraded.
// TestPreviousRelease does so too, with the programs of that release, later.
func TestPreviousSchemaIsUpgraded(t *testing.T) {
	t.Parallel()
	conn := connect(t, posthorntest.EmptyDatabase(t))
	if _, err := schema.Load(t, previousRelease(t)).Migrate(t.Context(), conn, schema.Options{}); err != nil {
		t.Fatal(err)
	}
	present := present(t)
	present["revision"] = file("1000000 -") // no release has it
	if _, err := schema.Load(t, present).Migrate(t.Context(), conn, schema.Options{}); err != nil {
		t.Errorf("a database of the last release is not upgraded: %v", err)
	}
	functions := func(conn *pgx.Conn) []string {
		return value[[]string](t, conn, "select array_agg(p.oid::regprocedure::text) from pg_proc p where pronamespace = 'posthorn'::regnamespace")
	}
	fresh := functions(connect(t, posthorntest.Database(t)))
	for _, function := range functions(conn) {
		name, _, _ := strings.Cut(function, "(")
		isOverload := func(other string) bool { return strings.HasPrefix(other, name+"(") }
		if !slices.Contains(fresh, function) && slices.ContainsFunc(fresh, isOverload) {
			t.Errorf("after the upgrade the old %s stands beside the new one, so calls are ambiguous: drop it in a migration", function)
		}
	}
}

// beforeThisLife is a commit whose schema knows a promotion by an unlogged sequence, which migration 024 drops.
const beforeThisLife = "f823ffdef6c5bcafd8dcac3ef42765c68ef8aaff"

// A standby that has replayed an installation from before migration 024, and is promoted before it has written it to its disk,
// lacks the pages of unlogged sequences that Postgres resets after a promotion. The migration mends that.
func TestMigrationMendsAPromotedStandby(t *testing.T) {
	t.Parallel()
	primary := testpg.StartPrimary(t, map[string]string{"shared_buffers": "128MB", "checkpoint_timeout": "1d", "bgwriter_lru_maxpages": "0"})
	standby := primary.Standby(t, "standby")
	if _, err := schema.Load(t, schemaOf(t, beforeThisLife)).Migrate(t.Context(), connect(t, primary.URL()), schema.Options{}); err != nil {
		t.Fatal(err)
	}
	standby.AwaitReceived(t, primary)
	if err := primary.Kill(); err != nil {
		t.Fatal(err)
	}
	standby.Promote(t)
	const publish = "select posthorn.publish('default', 'order.placed')"
	conn := connect(t, standby.URL())
	if _, err := conn.Exec(t.Context(), publish); err == nil {
		t.Fatal("the page is not missing: a publish succeeds before the migration")
	}
	if _, err := schema.Migrate(t.Context(), conn, schema.Options{}); err != nil {
		t.Fatal(err)
	}
	run(t, conn, publish)
	run(t, conn, "insert into posthorn.job_hints (namespace_id, tag, rank, turn, job, dead, until) values (1, 'x', 0, now(), 0, 1, now())")
	upkeep := value[string](t, conn, "select posthorn.tend(in_turn => true)::text")
	moves := value[string](t, conn, "select string_agg(reason, ' ') from posthorn.moves")
	if strings.Contains(upkeep, "errors") || moves != "promotion" {
		t.Errorf("upkeep: %s; the numbers moved because of: %s", upkeep, moves)
	}
}

var commitLine = regexp.MustCompile(`(?m)^[0-9a-f]{40}$`)

// previousRelease returns the schema of the commit that internal/previous/commit names.
func previousRelease(t *testing.T) fstest.MapFS {
	t.Helper()
	named, err := os.ReadFile(filepath.Join("..", "internal", "previous", "commit"))
	if err != nil {
		t.Fatal(err)
	}
	return schemaOf(t, commitLine.FindString(string(named)))
}

// schemaOf returns the schema of a commit.
func schemaOf(t *testing.T, commit string) fstest.MapFS {
	t.Helper()
	git := func(args ...string) ([]byte, error) {
		return exec.CommandContext(t.Context(), "git", append([]string{"-C", ".."}, args...)...).Output()
	}
	if _, err := git("cat-file", "-e", commit+"^{commit}"); err != nil {
		t.Skipf("this checkout has no history back to %s: git fetch --unshallow", commit)
	}
	archive, err := git("archive", commit+":schema")
	if err != nil {
		t.Fatalf("git archive: %v", err)
	}
	files := fstest.MapFS{}
	for tree := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := tree.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Name != "revision" && !strings.HasSuffix(header.Name, ".sql") {
			continue
		}
		content, err := io.ReadAll(tree)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = file(string(content))
	}
}
