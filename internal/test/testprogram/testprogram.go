// Package testprogram finds the programs that tests run as servers.
// scripts/test-program builds each of them from its module, once for a checkout.
package testprogram

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
)

// Path returns the path of a program. The first call builds it, and concurrent calls
// wait.
func Path(name string) (string, error) {
	root, err := Root()
	if err != nil {
		return "", err
	}
	script := filepath.Join(root, "scripts", "test-program")
	unlock, err := Lock(script)
	if err != nil {
		return "", err
	}
	defer unlock()
	path, err := exec.Command(script, name).Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return "", fmt.Errorf("scripts/test-program %s: %s", name, strings.TrimSpace(string(failed.Stderr)))
	}
	return strings.TrimSpace(string(path)), err
}

// Root returns the directory of this module.
func Root() (string, error) {
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/posthorn/posthorn").Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w", err)
	}
	return strings.TrimSpace(string(module)), nil
}

// Lock waits until no other process has a lock on the file, so that only one builds at a time.
func Lock(file string) (unlock func(), err error) {
	lock, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return func() { _ = lock.Close() }, nil
}
