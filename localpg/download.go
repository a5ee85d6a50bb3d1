//go:build !small

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

// download fetches binaries of the given major version (0: the newest) into
// the cache, unless they are there, and returns their bin directory.
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
		return bin, nil // another process was faster
	}
	config.Logger.InfoContext(ctx, "downloading postgres", "version", string(version), "into", target)
	return bin, fetch(ctx, config, version, target)
}

// lockCache keeps processes that start side by side from downloading the same.
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

// fetch unpacks into a directory of its own and renames it, so that target is
// whole or missing.
func fetch(ctx context.Context, config Config, version embeddedpostgres.PostgresVersion, target string) error {
	scratch, err := os.MkdirTemp(config.CacheDir, "download-")
	if err != nil {
		return err
	}
	unpacked := filepath.Join(scratch, "unpacked")
	result := make(chan error, 1)
	go func() {
		// The library takes no context: after a cancellation this goroutine
		// ends with the download, and only then may its directory go. Whoever
		// waits hears when it has gone.
		err := runDownloader(config, version, scratch, unpacked)
		if err == nil {
			err = publishDownload(ctx, unpacked, target)
		}
		_ = os.RemoveAll(scratch) // what is left of it harms nobody
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
	// As root the server runs under another account, which must be able to
	// read what was unpacked whatever the umask is.
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

// runDownloader uses the library for its download alone. It has no call for
// that: Start downloads, unpacks, makes a cluster and runs it, and it deletes
// directories on the way. A data directory that ends in a dot cannot be deleted
// and so stops it right after unpacking; that the binaries are there, not the
// absence of an error, is the success.
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
