package schema_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A database that has a migration never runs it again, so a changed one would make two kinds of databases.
func TestFrozenMigrationsStay(t *testing.T) {
	t.Parallel()
	frozen, err := os.ReadFile("frozen")
	if err != nil {
		t.Fatal(err)
	}
	if err := checkFrozen(string(frozen), "migrations"); err != nil {
		t.Error(err)
	}
}

// checkFrozen compares the files of a directory with a list in the form of sha256sum.
func checkFrozen(list, dir string) error {
	listed := map[string]bool{}
	for line := range strings.Lines(list) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		sum, name, found := strings.Cut(strings.TrimSpace(line), "  ")
		if !found {
			return fmt.Errorf("frozen: %q is not a line of sha256sum", line)
		}
		listed[name] = true
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return fmt.Errorf("%w: databases have this migration: keep it", err)
		}
		if fmt.Sprintf("%x", sha256.Sum256(content)) != sum {
			return fmt.Errorf("%s has changed, and databases have it as it was: write a new migration", name)
		}
	}
	files, err := os.ReadDir(dir)
	for _, file := range files {
		if !listed[file.Name()] {
			return fmt.Errorf("%s is not in schema/frozen: add its checksum", file.Name())
		}
	}
	return err
}

func TestChangesOfFrozenMigrationsAreRefused(t *testing.T) {
	t.Parallel()
	const (
		one     = "select 1;\n"
		another = "select 2;\n"
	)
	list := fmt.Sprintf("# a comment\n%x  001_log.sql\n", sha256.Sum256([]byte(one)))
	for name, test := range map[string]struct {
		files map[string]string
		want  string
	}{
		"the same":     {map[string]string{"001_log.sql": one}, ""},
		"one more":     {map[string]string{"001_log.sql": one, "002_jobs.sql": another}, "add its checksum"},
		"changed":      {map[string]string{"001_log.sql": another}, "write a new migration"},
		"with a space": {map[string]string{"001_log.sql": one + " "}, "write a new migration"},
		"renamed":      {map[string]string{"001_events.sql": one}, "keep it"},
	} {
		dir := t.TempDir()
		for file, content := range test.files {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		err := checkFrozen(list, dir)
		if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want %q", name, err, test.want)
		}
	}
	if err := checkFrozen("no list", t.TempDir()); err == nil {
		t.Error("a line in another form is skipped")
	}
}
