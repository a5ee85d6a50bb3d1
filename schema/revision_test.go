package schema

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the revision of the functions")

// Databases take new functions only from a binary with a higher revision, so a
// release that changes functions must raise it.
func TestRevision(t *testing.T) {
	dir := os.DirFS(".")
	number, recorded, err := loadRevision(dir)
	if err != nil {
		t.Fatal(err)
	}
	functions, err := loadFunctions(dir)
	if err != nil {
		t.Fatal(err)
	}
	want := nextRevision(number, hash(functions), released(t))
	if *update {
		write(t, want, hash(functions))
		return
	}
	if recorded != hash(functions) || number != want {
		t.Errorf("functions have changed since revision %d was recorded; run: go generate ./schema", number)
	}
}

// nextRevision keeps the number until it has gone out with other functions.
func nextRevision(number int, hash string, released map[int]string) int {
	if out, ok := released[number]; ok && out != hash {
		return number + 1
	}
	return number
}

func TestNextRevision(t *testing.T) {
	released := map[int]string{1: "a", 2: "b"}
	for _, test := range []struct {
		number int
		hash   string
		want   int
	}{
		{2, "b", 2}, // as released
		{2, "c", 3}, // changed after the release
		{3, "d", 3}, // changed again before the next
	} {
		if got := nextRevision(test.number, test.hash, released); got != test.want {
			t.Errorf("nextRevision(%d, %q) = %d, want %d", test.number, test.hash, got, test.want)
		}
	}
}

func released(t *testing.T) map[int]string {
	t.Helper()
	f, err := os.Open("released")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	revisions := map[int]string{}
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "#") {
			continue
		}
		var number int
		var hash string
		if _, err := fmt.Sscanf(lines.Text(), "%d %s", &number, &hash); err != nil {
			t.Fatalf("released: %q: %v", lines.Text(), err)
		}
		revisions[number] = hash
	}
	return revisions
}

func write(t *testing.T, number int, hash string) {
	t.Helper()
	if err := os.WriteFile("revision", fmt.Appendf(nil, "%d %s\n", number, hash), 0o644); err != nil {
		t.Fatal(err)
	}
}
