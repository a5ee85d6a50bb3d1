package testpg

import (
	"os"
	"testing"
)

func TestMakeDirectoryIsOpenToOtherUsers(t *testing.T) {
	t.Parallel()
	dir, err := MakeDirectory("testpg-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	info, err := os.Stat(dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode().Perm(); got != 0o755 {
		t.Errorf("mode %o, want 755", got)
	}
}
