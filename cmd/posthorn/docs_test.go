package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/posthorntest"
)

// What the documentation tells people to type works as it stands there.

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
	database := posthorntest.Database(t)
	conn := connectTo(t, database)
	steps := snippets(t, "../../README.md")
	if len(steps) < 4 {
		t.Fatalf("found %d snippets; the fences have changed", len(steps))
	}
	for _, step := range steps {
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
	var dead, retries int
	if err := conn.QueryRow(context.Background(), `select dead_letters, retries from posthorn.group_status
		where group_name = 'billing'`).Scan(&dead, &retries); err != nil {
		t.Fatal(err)
	}
	if dead != 0 || retries != 1 {
		t.Errorf("after the README: %d dead letters and %d retries, want the one dead letter redriven", dead, retries)
	}
}

// The guides change what is cluster-wide, so they are rolled back.
func TestGuides(t *testing.T) {
	for _, page := range []string{"groups.md", "nodes.md", "operations.md"} {
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

// The README's commands for make exist, and make up builds and runs.
func TestMakeTargets(t *testing.T) {
	output, err := exec.Command("make", "-n", "-C", "../..", "up", "test").CombinedOutput()
	if err != nil || !strings.Contains(string(output), "bin/posthorn up") {
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
