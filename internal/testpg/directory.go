// Package testpg decides where servers that tests run keep their data, and puts
// a pooler in front of them. It starts no server: that is for packages localpg
// and posthorntest.
package testpg

import (
	"os"
	"syscall"
)

// A file system in memory, on Linux. Creating a database creates some 300
// files: 8 ms there, and up to 250 ms on a disk.
const memory = "/dev/shm"

// memoryNeeded leaves room for the servers of several packages. Containers
// often have only 64 MB there.
const memoryNeeded = 2 << 30

// MakeDirectory makes a directory for a server's data, in memory if there is
// room, and open to the user that runs the server when root runs the tests.
// Removing it is up to the caller.
func MakeDirectory(prefix string) (string, error) {
	dir, err := os.MkdirTemp(parent(), prefix)
	if err != nil {
		return "", err
	}
	return dir, os.Chmod(dir, 0o755)
}

func parent() string {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(memory, &stat); err != nil {
		return os.TempDir()
	}
	info, err := os.Stat(memory)
	if err != nil || info.Mode()&0o002 == 0 || uint64(stat.Bavail)*uint64(stat.Bsize) < memoryNeeded {
		return os.TempDir()
	}
	return memory
}
