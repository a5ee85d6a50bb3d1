package localpg

import (
	"os"
	"path/filepath"
	"strings"
)

// maxSocketPath is what fits a Unix socket address on every system: 103 bytes
// on macOS and the BSDs, 107 on Linux.
const maxSocketPath = 103

const shortSocketPrefix = "posthorn-socket-"

// makeSocketDir returns the directory for the socket: socket/ in the data
// directory, or, where that path is too long for a socket address, a short one
// that socket/ links to. What a killed server has left there goes first: the
// socket's own lock file names a process too, which may be any by now.
func (d *directory) makeSocketDir() (string, error) {
	path := filepath.Join(d.path, "socket")
	if err := d.removeShortSocketDir(); err != nil {
		return "", err
	}
	if err := os.RemoveAll(path); err != nil {
		return "", err
	}
	if len(path)+len("/.s.PGSQL.65535") <= maxSocketPath {
		return path, d.makeOwned(path)
	}
	short, err := shortSocketDir()
	if err != nil {
		return "", err
	}
	if err := d.owner.own(short); err != nil {
		return "", err
	}
	return short, os.Symlink(short, path)
}

func shortSocketDir() (string, error) {
	parent := os.TempDir()
	if len(parent) > 60 {
		parent = "/tmp"
	}
	return os.MkdirTemp(parent, shortSocketPrefix)
}

// removeShortSocketDir removes the directory that socket/ links to, if it is a
// link: one of ours, from this run or one that was killed.
func (d *directory) removeShortSocketDir() error {
	path := filepath.Join(d.path, "socket")
	short, err := os.Readlink(path)
	if err != nil {
		return nil // missing, or a directory of its own
	}
	if strings.HasPrefix(filepath.Base(short), shortSocketPrefix) {
		if err := os.RemoveAll(short); err != nil {
			return err
		}
	}
	return os.Remove(path)
}
