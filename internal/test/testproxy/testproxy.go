// Package testproxy installs this module by its version, from a module proxy in a directory. So tests use it as programs
// of others do.
package testproxy

import (
	"archive/zip"
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/internal/test/testprogram"
)

const module = "github.com/posthorn/posthorn"

// Env is an environment for the go command in which the files of this checkout are a version of the module. The home
// directory and the module cache are empty. The other modules come from the machine's module cache, and what that lacks from
// the machine's proxy: a new cache has the modules that this checkout needs, but not each go.mod that another module asks for.
// Compiled packages are shared with the machine.
func Env(t testing.TB, version string) []string {
	t.Helper()
	root, err := testprogram.Root()
	if err != nil {
		t.Fatal(err)
	}
	proxy, home := t.TempDir(), t.TempDir()
	if err := write(root, filepath.Join(proxy, filepath.FromSlash(module), "@v"), version); err != nil {
		t.Fatal(err)
	}
	path := strings.Split(golang(t, "GOMODCACHE", "GOCACHE", "GOPROXY"), "\n")
	return append(slices.DeleteFunc(os.Environ(), isOfGo),
		"HOME="+home,
		"GOENV=off", "GOWORK=off", "GOTOOLCHAIN=local", "GOSUMDB=off",
		"GOMODCACHE="+filepath.Join(home, "go", "pkg", "mod"),
		"GOCACHE="+path[1],
		"GOPROXY=file://"+filepath.ToSlash(proxy)+",file://"+filepath.ToSlash(filepath.Join(path[0], "cache", "download"))+","+path[2],
		"GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -modcacherw"), // so that the test can remove its module cache
	)
}

func isOfGo(variable string) bool {
	return slices.ContainsFunc([]string{"HOME=", "GOPATH=", "GOFLAGS=", "GONOSUMDB=", "GONOPROXY=", "GOPRIVATE=", "GOBIN="}, func(name string) bool {
		return strings.HasPrefix(variable, name)
	})
}

func golang(t testing.TB, variables ...string) string {
	t.Helper()
	out, err := exec.Command("go", append([]string{"env"}, variables...)...).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// write writes the files of a module proxy.
func write(root, dir, version string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return err
	}
	files, err := filesOf(root)
	if err != nil {
		return err
	}
	var zipped bytes.Buffer
	if err := pack(&zipped, root, module+"@"+version+"/", files); err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"list":            []byte(version + "\n"),
		version + ".info": fmt.Appendf(nil, `{"Version": %q, "Time": "2026-11-28T00:00:00Z"}`, version),
		version + ".mod":  mod,
		version + ".zip":  zipped.Bytes(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// filesOf are the files of the module in a checkout, by their paths in it: without other modules, and without what builds
// leave there. A copy of the checkout without git has the same files.
func filesOf(root string) (files []string, err error) {
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil || path == root:
			return err
		case entry.IsDir() && (isLeftOver(entry.Name()) || isModule(path)):
			return filepath.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		name, err := filepath.Rel(root, path)
		files = append(files, filepath.ToSlash(name))
		return err
	})
	return files, err
}

func isLeftOver(dir string) bool {
	return strings.HasPrefix(dir, ".") || slices.Contains([]string{"bin", "dist", "node_modules"}, dir)
}

func isModule(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

func pack(w io.Writer, root, prefix string, files []string) error {
	out := zip.NewWriter(w)
	for _, name := range files {
		content, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			return err
		}
		file, err := out.Create(prefix + name)
		if err != nil {
			return err
		}
		if _, err := file.Write(content); err != nil {
			return err
		}
	}
	return out.Close()
}
