package localpg

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	embeddedpostgres "github.com/fergusstrange/embedded-postgres"
)

// downloadable are the versions to download, by major version.
var downloadable = map[int]embeddedpostgres.PostgresVersion{
	15: embeddedpostgres.V15,
	16: embeddedpostgres.V16,
	17: embeddedpostgres.V17,
	18: embeddedpostgres.V18,
}

const newestDownloadable = 18

// download fetches binaries of the given major version (0: the newest) into the
// cache, unless the cache has them, and returns their bin directory.
func download(ctx context.Context, config Config, major int) (string, error) {
	if major == 0 {
		major = newestDownloadable
	}
	version, ok := downloadable[major]
	if !ok {
		return "", fmt.Errorf("there is no version %d to download", major)
	}
	if err := os.MkdirAll(config.CacheDir, 0o755); err != nil {
		return "", err
	}
	unlock, err := lockCache(config.CacheDir)
	if err != nil {
		return "", err
	}
	defer unlock()
	target := filepath.Join(config.CacheDir, "postgres-"+string(version))
	bin := filepath.Join(target, "bin")
	if isProgram(filepath.Join(bin, "postgres")) {
		return bin, nil // another process has downloaded it
	}
	config.Logger.InfoContext(ctx, "downloading postgres", "version", string(version), "into", target)
	return bin, fetch(ctx, config, version, target)
}

// lockCache prevents concurrent processes from downloading the same version twice.
func lockCache(dir string) (unlock func(), err error) {
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		lock.Close()
		return nil, fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	return func() { lock.Close() }, nil
}

// fetch unpacks into a temporary directory and renames it, so that target is complete
// or missing.
func fetch(ctx context.Context, config Config, version embeddedpostgres.PostgresVersion, target string) error {
	scratch, err := os.MkdirTemp(config.CacheDir, "download-")
	if err != nil {
		return err
	}
	unpacked := filepath.Join(scratch, "unpacked")
	result := make(chan error, 1)
	go func() {
		// The library takes no context. After a cancellation this goroutine ends when
		// the download does, and only then removes the directory.
		err := runDownloader(config, version, scratch, unpacked)
		if err == nil {
			err = publishDownload(ctx, unpacked, target)
		}
		_ = os.RemoveAll(scratch) // a remainder does no harm
		result <- err
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func publishDownload(ctx context.Context, unpacked, target string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	// As root the server runs under another account, which must be able to read the
	// files under any umask.
	if err := filepath.WalkDir(unpacked, openToAll); err != nil {
		return err
	}
	return os.Rename(unpacked, target)
}

func openToAll(path string, entry os.DirEntry, err error) error {
	if err != nil || entry.Type()&os.ModeSymlink != 0 {
		return err
	}
	info, err := entry.Info()
	if err != nil {
		return err
	}
	mode := info.Mode().Perm() | 0o444
	if entry.IsDir() || mode&0o100 != 0 {
		mode |= 0o111
	}
	return os.Chmod(path, mode)
}

// runDownloader uses the library only to download, although its Start also creates
// and runs a cluster, and deletes directories on the way. A data directory whose name
// ends in a dot cannot be deleted, so Start fails right after unpacking. Therefore
// runDownloader ignores the error and checks that the binaries exist.
func runDownloader(config Config, version embeddedpostgres.PostgresVersion, scratch, unpacked string) error {
	settings := embeddedpostgres.DefaultConfig().
		Version(version).
		Port(0).
		CachePath(filepath.Join(scratch, "cache")).
		RuntimePath(filepath.Join(scratch, "runtime")).
		BinariesPath(unpacked).
		DataPath(scratch + "/.").
		Logger(io.Discard)
	if config.DownloadURL != "" {
		settings = settings.BinaryRepositoryURL(strings.TrimRight(config.DownloadURL, "/"))
	}
	err := embeddedpostgres.NewDatabase(settings).Start()
	if isProgram(filepath.Join(unpacked, "bin", "initdb")) && isProgram(filepath.Join(unpacked, "bin", "postgres")) {
		return nil
	}
	if err == nil {
		err = errors.New("the archive holds no initdb and postgres")
	}
	return err
}
