package localpg

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/posthorn/posthorn/internal/test/await"
)

// fakeBinaries makes a directory with an initdb and a postgres that only print their
// version.
func fakeBinaries(t *testing.T, dir, version string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"initdb", "postgres"} {
		script := "#!/bin/sh\necho '" + name + " (PostgreSQL) " + version + "'\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestSearchPrefersNewest(t *testing.T) {
	t.Parallel()
	root := sharedDir(t)
	for _, version := range []string{"9.6", "15.4", "18beta1", "17.2"} {
		fakeBinaries(t, filepath.Join(root, version, "bin"), version)
	}
	where := places{globs: []string{filepath.Join(root, "*", "bin")}}
	owner, err := serverAccount()
	if err != nil {
		t.Fatal(err)
	}
	for major, want := range map[int]string{0: "18beta1", 15: "15.4", 17: "17.2"} {
		got, seen := searchBinaries(t.Context(), where, owner, major)
		if got.version != want {
			t.Errorf("for a cluster of %d: found %q (unusable: %q), want %q", major, got.version, seen, want)
		}
	}
	if _, seen := searchBinaries(t.Context(), where, owner, 16); len(seen) != 4 {
		t.Errorf("unusable: %q, want all four", seen)
	}
}

func TestSearchPrefersPath(t *testing.T) {
	t.Parallel()
	root := sharedDir(t)
	onPath := fakeBinaries(t, filepath.Join(root, "path"), "15.4")
	fakeBinaries(t, filepath.Join(root, "18", "bin"), "18.1")
	where := places{
		path:  strings.Join([]string{"", "relative", root, onPath}, string(os.PathListSeparator)),
		globs: []string{filepath.Join(root, "*", "bin")},
	}
	want := []string{onPath, filepath.Join(root, "18", "bin")}
	if diff := cmp.Diff(want, where.dirs()); diff != "" {
		t.Errorf("places (-want +got):\n%s", diff)
	}
}

// scripts/deps installs a Postgres where it finds none, so it must search the same
// places as this package.
func TestScriptSearchesSamePlaces(t *testing.T) {
	t.Parallel()
	script, err := os.ReadFile("../scripts/deps")
	if err != nil {
		t.Fatal(err)
	}
	const cache = "/nowhere"
	for _, glob := range usualPlaces(cache).globs {
		if !strings.HasPrefix(glob, cache) && !strings.Contains(string(script), " "+glob) && !strings.Contains(string(script), "\t"+glob) {
			t.Errorf("scripts/deps does not look in %s", glob)
		}
	}
}

func TestParseVersion(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]string{
		"postgres (PostgreSQL) 15.4 (Debian 15.4-1)\n": "15.4",
		"postgres (PostgreSQL) 18beta1\n":              "18beta1",
		"postgres (PostgreSQL) 19devel":                "19devel",
	} {
		if got, _, err := parseVersion(line); err != nil || got != want {
			t.Errorf("parseVersion(%q) = %q, %v", line, got, err)
		}
	}
	if _, _, err := parseVersion("something else"); err == nil {
		t.Error("parseVersion accepted a line without a version")
	}
}

func TestBinDirWithoutPrograms(t *testing.T) {
	t.Parallel()
	config := testConfig(sharedDir(t))
	config.BinDir = config.Dir
	_, err := Start(await.Context(t), config)
	wantError(t, err, "no program initdb in "+config.Dir)
}

func TestBinDirTooOld(t *testing.T) {
	t.Parallel()
	config := testConfig(sharedDir(t))
	config.BinDir = fakeBinaries(t, filepath.Join(sharedDir(t), "bin"), "14.9")
	_, err := Start(await.Context(t), config)
	wantError(t, err, "14.9", "older than 15")
}

func TestNothingInstalled(t *testing.T) {
	t.Parallel()
	offline := serveJar(t, nil)
	config := testConfig(sharedDir(t))
	config.DownloadURL, config.CacheDir = offline, sharedDir(t)
	_, err := download(t.Context(), config, 0)
	wantError(t, missing(0, nil, err), "install PostgreSQL 15 or newer", "download: ")
}

func TestClusterOfAnotherMajorVersion(t *testing.T) {
	t.Parallel()
	config := testConfig(madeDir(t))
	// No machine has version 99, and there is nothing to download.
	if err := os.WriteFile(filepath.Join(config.Dir, "pgdata", "PG_VERSION"), []byte("99\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Start(await.Context(t), config)
	wantError(t, err, config.Dir, "made by PostgreSQL 99")

	config.BinDir, config.CacheDir = "", sharedDir(t)
	_, err = Start(await.Context(t), config)
	wantError(t, err, config.Dir, "made by PostgreSQL 99: install that version")
}
