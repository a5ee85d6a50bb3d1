// Package testgolden compares texts with files of the tree, so that a change of a text
// shows in the diff of a commit. The flag -update of the tests writes the files.
package testgolden

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the files that tests compare texts with")

// Check fails the test unless a file has a text.
func Check(t testing.TB, path, text string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(got), text); diff != "" {
		t.Errorf("%s is stale; run make generate (-file +text):\n%s", path, diff)
	}
}
