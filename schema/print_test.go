package schema_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/schema"
)

// seed 001.1
func TestPrintedScriptEqualsMigrate(t *testing.T) {
	t.Parallel()
	printed, migrated := posthorntest.EmptyDatabase(t), posthorntest.Database(t)
	var script bytes.Buffer
	if err := schema.Print(&script); err != nil {
		t.Fatal(err)
	}
	if output, err := psql(t, printed, script.String()); err != nil {
		t.Fatalf("psql: %v\n%s", err, output)
	}
	if diff := cmp.Diff(dump(t, migrated), dump(t, printed)); diff != "" {
		t.Errorf("the script and Migrate create different databases (-Migrate +script):\n%s", diff)
	}
	state, err := schema.Status(t.Context(), connect(t, printed))
	if err != nil || state.Standing != schema.Current {
		t.Errorf("status = %q, %v; want %q", state.Standing, err, schema.Current)
	}
}

// seed 001.2
func TestPrintedScriptRunsOnce(t *testing.T) {
	url := posthorntest.EmptyDatabase(t)
	b := schema.Load(t, small(1, 42))
	migrate(t, b, connect(t, url))
	var script bytes.Buffer
	if err := b.Print(&script); err != nil {
		t.Fatal(err)
	}
	output, err := psql(t, url, script.String())
	if err == nil || !strings.Contains(output, "use posthorn migrate to upgrade") {
		t.Errorf("second installation: %v, %s; want a refusal that names the command", err, output)
	}
}

// A driver that sends the whole script in one query has the same result.
func TestPrintedScriptWithoutPsql(t *testing.T) {
	conn := connect(t, posthorntest.EmptyDatabase(t))
	b := schema.Load(t, small(1, 42))
	var script bytes.Buffer
	if err := b.Print(&script); err != nil {
		t.Fatal(err)
	}
	run(t, conn, script.String())
	if got := standing(t, b, conn); got != schema.Current {
		t.Errorf("standing %q, want %q", got, schema.Current)
	}
	if got := value[string](t, conn, "show search_path"); got == "" || got == `""` {
		t.Errorf("search_path is %q after the script", got)
	}
}

func psql(t *testing.T, url, script string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program(t, "psql"), "-X", "-q", "-1", "-v", "ON_ERROR_STOP=1", url)
	cmd.Stdin = strings.NewReader(script)
	output, err := cmd.CombinedOutput()
	return string(output), err
}

// variable matches the values that differ between installations: times, the
// identifier of the log, and the random key that newer versions of pg_dump print.
var variable = regexp.MustCompile(`(?i)[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[0-9.+]*|\\(un)?restrict \w+`)

// dump returns the contents of the database without the values of one installation.
func dump(t *testing.T, url string) string {
	t.Helper()
	run(t, connect(t, url), "update posthorn.cluster set life = null, log = null") // they differ between installations, too
	cmd := exec.CommandContext(t.Context(), program(t, "pg_dump"), "--inserts", url)
	output, err := cmd.CombinedOutput()
	if strings.Contains(string(output), "server version mismatch") {
		t.Skip("pg_dump is older than the server")
	}
	if err != nil {
		t.Fatalf("pg_dump: %v\n%s", err, output)
	}
	return variable.ReplaceAllString(string(output), "x")
}

func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(filepath.Join(os.Getenv("POSTHORN_TEST_PG_BIN"), name))
	if err != nil {
		t.Skipf("no %s here", name)
	}
	return path
}
