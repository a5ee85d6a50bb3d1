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
	module, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/posthorn/posthorn").Output()
	if err != nil {
		return "", fmt.Errorf("go list: %w", err)
	}
	script := filepath.Join(strings.TrimSpace(string(module)), "scripts", "test-program")
	lock, err := os.Open(script)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	path, err := exec.Command(script, name).Output()
	if failed := (*exec.ExitError)(nil); errors.As(err, &failed) {
		return "", fmt.Errorf("scripts/test-program %s: %s", name, strings.TrimSpace(string(failed.Stderr)))
	}
	return strings.TrimSpace(string(path)), err
}
