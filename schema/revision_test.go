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

// A database takes functions only from a binary with a higher revision than its own.
// So a release that changes functions must increment the revision.
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

// nextRevision returns number, or its successor if number was released with other
// functions.
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
		{2, "b", 2}, // unchanged since the release
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
