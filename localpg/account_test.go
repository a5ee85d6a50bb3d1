package localpg

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root runs the server as somebody else")
	}
}

func TestRootRunsServerAsSomebodyElse(t *testing.T) {
	t.Parallel()
	needRoot(t)
	s := mustStart(t, testConfig(filepath.Join(sharedDir(t), "made", "by", "us")))
	owner, err := serverAccount()
	if err != nil {
		t.Fatal(err)
	}
	// The server may write its cluster and socket, and nothing beside them.
	for name, want := range map[string]uint32{"pgdata": owner.uid, "socket": owner.uid, ".": 0, "postgres.log": 0} {
		if got := ownerOf(t, filepath.Join(s.config.Dir, name)); got != want {
			t.Errorf("%s belongs to uid %d, want %d", name, got, want)
		}
	}
}

func TestRootUsesAnEmptyPrivateDirectory(t *testing.T) {
	t.Parallel()
	needRoot(t)
	private := filepath.Join(sharedDir(t), "private")
	if err := os.Mkdir(private, 0o700); err != nil {
		t.Fatal(err)
	}
	mustStart(t, testConfig(private))
}

func TestDirectoryOutOfReach(t *testing.T) {
	t.Parallel()
	needRoot(t)
	private := filepath.Join(sharedDir(t), "private")
	if err := os.Mkdir(private, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := Start(testContext(t), testConfig(filepath.Join(private, "a", "b")))
	wantError(t, err, "may not enter "+private+":", "chmod o+x")
}

func TestBinariesOutOfReach(t *testing.T) {
	t.Parallel()
	needRoot(t)
	private := filepath.Join(sharedDir(t), "private")
	config := testConfig(sharedDir(t))
	config.BinDir = fakeBinaries(t, filepath.Join(private, "bin"), "18.1")
	if err := os.Chmod(private, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := Start(testContext(t), config)
	wantError(t, err, "may not run "+config.BinDir)
}

func ownerOf(t *testing.T, path string) uint32 {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Sys().(*syscall.Stat_t).Uid
}
