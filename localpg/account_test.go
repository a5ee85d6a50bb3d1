package localpg

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/posthorn/posthorn/internal/test/await"
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root runs the server as another user")
	}
}

func TestDirectoryOutOfReach(t *testing.T) {
	t.Parallel()
	needRoot(t)
	private := filepath.Join(sharedDir(t), "private")
	if err := os.Mkdir(private, 0o700); err != nil {
		t.Fatal(err)
	}
	_, err := Start(await.Context(t), testConfig(filepath.Join(private, "a", "b")))
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
	_, err := Start(await.Context(t), config)
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
