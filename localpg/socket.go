package localpg

import (
	"os"
	"path/filepath"
	"strings"
)

// maxSocketPath is the longest path of a Unix socket on every system: 103 bytes on
// macOS and the BSDs, 107 on Linux.
const maxSocketPath = 103

const shortSocketPrefix = "posthorn-socket-"

// makeSocketDir returns the directory for the socket: socket/ in the data directory,
// or, if that path is too long for a socket address, a short directory that socket/
// links to. It first removes the files of a killed server: the socket's lock file
// names a process id, which another program may have now.
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

// removeShortSocketDir removes the directory that socket/ links to, if it is a link.
// This process or a killed one has made it.
func (d *directory) removeShortSocketDir() error {
	path := filepath.Join(d.path, "socket")
	short, err := os.Readlink(path)
	if err != nil {
		return nil // missing, or a real directory
	}
	if strings.HasPrefix(filepath.Base(short), shortSocketPrefix) {
		if err := os.RemoveAll(short); err != nil {
			return err
		}
	}
	return os.Remove(path)
}
