package main

import (
	"bufio"
	"bytes"
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/await"
	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/seal/keeper"
)

// The commands and statements in the documentation work as they are printed there.

type snippet struct{ language, text string }

var fence = regexp.MustCompile("(?ms)^```(sh|sql)\n(.*?)^```$")

func snippets(t *testing.T, file string) []snippet {
	t.Helper()
	page, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var found []snippet
	for _, match := range fence.FindAllStringSubmatch(string(page), -1) {
		found = append(found, snippet{match[1], match[2]})
	}
	return found
}

func TestReadme(t *testing.T) {
	t.Parallel()
	database := posthorntest.Database(t)
	conn := connectTo(t, database)
	p := startPosthorn(t, database, "up")
	follow(t, conn, database, "../../README.md", "http://"+defaultListen, p.url)
	var dead, retries int
	if err := conn.QueryRow(context.Background(), `select dead_letters, retries from posthorn.group_status
		where group_name = 'billing'`).Scan(&dead, &retries); err != nil {
		t.Fatal(err)
	}
	if dead != 0 || retries != 1 {
		t.Errorf("after the README: %d dead letters and %d retries, want the one dead letter redriven", dead, retries)
	}
	var unfinished int
	if err := conn.QueryRow(context.Background(), "select count(*) from posthorn.jobs where finished_at is null").Scan(&unfinished); err != nil {
		t.Fatal(err)
	}
	if unfinished != 0 {
		t.Errorf("after the README: %d jobs are not finished", unfinished)
	}
}

// follow runs the snippets of a page in order. replace has pairs of texts: old, new.
func follow(t *testing.T, conn *pgx.Conn, database, page string, replace ...string) {
	t.Helper()
	replacer := strings.NewReplacer(replace...)
	steps := snippets(t, page)
	if len(steps) == 0 {
		t.Fatal("found no snippets; the fences have changed")
	}
	for _, step := range steps {
		step.text = replacer.Replace(step.text)
		if step.language == "sql" {
			typed(t, conn, step.text)
			continue
		}
		cmd := exec.Command("sh", "-e", "-c", step.text)
		cmd.Env = append(os.Environ(), "DATABASE_URL="+database)
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%s%s%v", step.text, output, err)
		}
	}
}

// Guides that need a database with the group billing.
func TestVerbs(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"groups.md", "jobs.md", "read.md", "schedule.md", "subscribe.md"} {
		t.Run(page, func(t *testing.T) {
			t.Parallel()
			database := posthorntest.Database(t)
			conn := connectTo(t, database)
			typed(t, conn, "select posthorn.define_group('default', 'billing')")
			follow(t, conn, database, filepath.Join("../../docs", page))
		})
	}
}

// The guide to projections needs a database with a projection.
func TestProjectGuide(t *testing.T) {
	t.Parallel()
	database := posthorntest.Database(t)
	conn := connectTo(t, database)
	typed(t, conn, "create table totals (customer text); select posthorn.define_projection('default', 'totals')")
	follow(t, conn, database, "../../docs/project.md")
}

// The guide to archives needs a directory to which an archive has written the log.
func TestArchiveGuide(t *testing.T) {
	t.Parallel()
	database, dir := posthorntest.Database(t), t.TempDir()
	conn := connectTo(t, database)
	typed(t, conn, "select posthorn.publish('default', 'order.placed', stream => 'orders')")
	archiver := exec.Command("posthorn", "archive", "file://"+dir, "--segment-age", "1us")
	archiver.Env = append(os.Environ(), "DATABASE_URL="+database)
	if err := archiver.Start(); err != nil {
		t.Fatal(err)
	}
	await.True(t, "the event is archived", func() bool {
		var done bool
		err := conn.QueryRow(t.Context(), "select coalesce(bool_and(changes > 0 and listed = changes), false) from posthorn.archive_streams").Scan(&done)
		return err == nil && done
	})
	_ = archiver.Process.Signal(os.Interrupt)
	if err := archiver.Wait(); err != nil {
		t.Error(err)
	}
	follow(t, conn, database, "../../docs/archive.md", "/tmp/posthorn-archive", dir)
}

// The guide to tokens needs a server, which requires tokens at the end.
func TestAccessGuide(t *testing.T) {
	t.Parallel()
	database := posthorntest.Database(t)
	p := startPosthorn(t, database, "serve")
	follow(t, connectTo(t, database), database, "../../docs/access.md", "http://"+defaultListen, p.url)
	await.True(t, "nobody gets in without a token", func() bool { return statusOf(t, p.url+"/v1/namespaces", "") == http.StatusUnauthorized })
}

// The guide to sealing needs a server with the key.
func TestSealingGuide(t *testing.T) {
	t.Parallel()
	database := posthorntest.Database(t)
	dir := t.TempDir()
	key := filepath.Join(dir, "seal.key")
	if err := keeper.NewKeyFile(key); err != nil {
		t.Fatal(err)
	}
	p := startPosthorn(t, database, "serve", "--seal-key", "file://"+key)
	conn := connectTo(t, database)
	follow(t, conn, database, "../../docs/sealing.md", "http://"+defaultListen, p.url,
		"make-key /etc/posthorn/seal.key", "make-key "+filepath.Join(dir, "new.key"), "/etc/posthorn/seal.key", key)
	var sealed int
	if err := conn.QueryRow(context.Background(), "select count(posthorn.sealed_with(payload)) from posthorn.events").Scan(&sealed); err != nil {
		t.Fatal(err)
	}
	if sealed != 2 {
		t.Errorf("%d events are sealed, want 2", sealed)
	}
}

func TestHTTPGuide(t *testing.T) {
	t.Parallel()
	database := posthorntest.Database(t)
	p := startPosthorn(t, database, "serve")
	follow(t, connectTo(t, database), database, "../../docs/http.md", "http://"+defaultListen, p.url)
}

// These guides change objects of the whole cluster, such as roles, so they are rolled back.
func TestGuides(t *testing.T) {
	t.Parallel()
	for _, page := range []string{"nodes.md", "observe.md", "operations.md", "table-changes.md"} {
		t.Run(page, func(t *testing.T) {
			conn := connectTo(t, posthorntest.Database(t))
			typed(t, conn, "begin")
			for _, step := range snippets(t, filepath.Join("../../docs", page)) {
				typed(t, conn, step.text)
			}
			typed(t, conn, "rollback")
		})
	}
}

// The README's program, in a new module that imports ours, prints the lines of the README.
func TestReadmeProgram(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	program := regexp.MustCompile("(?ms)^```go\n(.*?)^```$").FindSubmatch(page)
	if program == nil {
		t.Fatal("there is no program in the README")
	}
	if lines := bytes.Count(program[1], []byte("\n")); lines > 40 {
		t.Errorf("the program has %d lines, more than 40", lines)
	}
	cmd := exec.Command(buildProgram(t, program[1]))
	cmd.Env = append(os.Environ(), "DATABASE_URL="+posthorntest.Database(t))
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill() }()
	lines := bufio.NewScanner(out)
	for _, want := range []string{"charging order 8, attempt 1", "charging order 8, attempt 2"} {
		if lines.Scan(); lines.Text() != want {
			t.Fatalf("it printed %q, want %q", lines.Text(), want)
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after Ctrl-C: %v", err)
	}
}

// buildProgram makes a module as a new user would, with the requirements of this one.
func buildProgram(t *testing.T, source []byte) string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for from, to := range map[string]string{"go.mod": "go.mod", "go.sum": "go.sum"} {
		content, err := os.ReadFile(filepath.Join(root, from))
		if err != nil {
			t.Fatal(err)
		}
		content = bytes.Replace(content, []byte("module github.com/posthorn/posthorn\n"), []byte("module example.com/shop\n"), 1)
		if err := os.WriteFile(filepath.Join(dir, to), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "main.go"), source, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"mod", "edit", "-require=github.com/posthorn/posthorn@v0.0.0", "-replace=github.com/posthorn/posthorn=" + root},
		{"build", "-mod=mod", "-o", "shop", "."},
	} {
		cmd := exec.Command("go", args...)
		cmd.Dir = dir
		if output, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, output)
		}
	}
	return filepath.Join(dir, "shop")
}

// The README's commands for make exist, and make up builds and runs.
func TestMakeTargets(t *testing.T) {
	output, err := exec.Command("make", "-n", "-C", "../..", "up", "test").CombinedOutput()
	if err != nil || !strings.Contains(string(output), "scripts/up") {
		t.Errorf("make -n up test: %v\n%s", err, output)
	}
}

func connectTo(t *testing.T, database string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(context.Background(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

func typed(t *testing.T, conn *pgx.Conn, statements string) {
	t.Helper()
	if _, err := conn.PgConn().Exec(context.Background(), statements).ReadAll(); err != nil {
		t.Fatalf("%s%v", statements, err)
	}
}
