// Package testnode builds the client for Node and its test programs.
package testnode

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/test/testprogram"
)

// Dir returns the directory of the client, whose folder dist has the built client. It skips the
// test if there is no Node.
func Dir(t testing.TB) string {
	t.Helper()
	if _, err := exec.LookPath("npm"); err != nil {
		t.Skip("npm is missing: install Node.js with npm")
	}
	dir, err := Build()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// Build returns the directory of the client. It installs the packages that the client needs, with
// the checksums of package-lock.json and without their scripts, and compiles the client, both unless
// it was done. Other processes wait.
var Build = sync.OnceValues(func() (dir string, err error) {
	root, err := testprogram.Root()
	if err != nil {
		return "", err
	}
	dir = filepath.Join(root, "clients", "typescript")
	packages := filepath.Join(dir, "package-lock.json")
	unlock, err := testprogram.Lock(packages)
	if err != nil {
		return "", err
	}
	defer unlock()
	if installed := filepath.Join(dir, "node_modules", ".package-lock.json"); isOlder(installed, packages) {
		if err := npm(dir, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel", "error"); err != nil {
			return "", err
		}
	}
	built := filepath.Join(dir, "dist", "built")
	if !isOlder(built, packages, filepath.Join(dir, "README.md"), filepath.Join(dir, "tsconfig.json"), filepath.Join(dir, "src"), filepath.Join(dir, "test")) {
		return dir, nil
	}
	if err := npm(dir, "run", "--silent", "build"); err != nil {
		return "", err
	}
	return dir, os.WriteFile(built, nil, 0o644)
})

func npm(dir string, args ...string) error {
	cmd := exec.Command("npm", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm %s: %w\n%s", args[0], err, out)
	}
	return nil
}

// isOlder reports whether a file does not exist, or is older than a file at or in the given paths. It looks
// at each of these with os.Stat, so go test notices their changes, and keeps no old result.
func isOlder(file string, paths ...string) bool {
	its, err := os.Stat(file)
	if err != nil {
		return true
	}
	var newest time.Time
	for _, path := range paths {
		err := filepath.WalkDir(path, func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := os.Stat(path)
			if err == nil && info.ModTime().After(newest) {
				newest = info.ModTime()
			}
			return err
		})
		if err != nil {
			return true
		}
	}
	return its.ModTime().Before(newest)
}
