package localpg

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// minMajor is the oldest PostgreSQL that Posthorn runs on.
const minMajor = 15

// binaries are the programs of one PostgreSQL installation.
type binaries struct {
	dir     string
	version string // for example 15.4 or 18beta1
	major   int
}

func (b binaries) initdb() string { return filepath.Join(b.dir, "initdb") }

func (b binaries) postgres() string { return filepath.Join(b.dir, "postgres") }

// places are the directories to search for installations, in this order.
type places struct {
	path  string   // PATH
	globs []string // patterns of directories; the newest version of a pattern first
}

func usualPlaces(cacheDir string) places {
	return places{
		path: os.Getenv("PATH"),
		globs: []string{
			"/usr/lib/postgresql/*/bin", // Debian and derivatives
			"/usr/pgsql-*/bin",          // PGDG on Red Hat and derivatives
			"/usr/libexec/postgresql*",  // Alpine
			"/opt/homebrew/opt/postgresql@*/bin",
			"/usr/local/opt/postgresql@*/bin",
			"/home/linuxbrew/.linuxbrew/opt/postgresql@*/bin",
			"/Applications/Postgres.app/Contents/Versions/*/bin",
			filepath.Join(cacheDir, "postgres-*", "bin"), // downloaded earlier
		},
	}
}

// dirs lists the directories that hold initdb and postgres.
func (p places) dirs() []string {
	var dirs []string
	add := func(dir string) {
		if isProgram(filepath.Join(dir, "initdb")) && isProgram(filepath.Join(dir, "postgres")) {
			dirs = append(dirs, dir)
		}
	}
	for _, dir := range filepath.SplitList(p.path) {
		if filepath.IsAbs(dir) {
			add(dir)
		}
	}
	for _, glob := range p.globs {
		matches, _ := filepath.Glob(glob) // the only error is a bad pattern
		slices.SortStableFunc(matches, func(a, b string) int { return compareVersions(b, a) })
		for _, dir := range matches {
			add(dir)
		}
	}
	return dirs
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// compareVersions orders paths by the numbers in them, so that 9 < 15.
func compareVersions(a, b string) int {
	return slices.Compare(numbers(a), numbers(b))
}

func numbers(s string) []int {
	var found []int
	for _, field := range strings.FieldsFunc(s, func(r rune) bool { return r < '0' || r > '9' }) {
		n, _ := strconv.Atoi(field)
		found = append(found, n)
	}
	return found
}

// findBinaries chooses an installation that can run a cluster of the given major
// version. Major 0 stands for any version.
func findBinaries(ctx context.Context, config Config, owner *account, major int) (binaries, error) {
	if config.BinDir != "" {
		return givenBinaries(ctx, config, owner, major)
	}
	found, seen := searchBinaries(ctx, usualPlaces(config.CacheDir), owner, major)
	if found.dir != "" {
		return found, nil
	}
	if err := ctx.Err(); err != nil {
		return binaries{}, err // the search was interrupted
	}
	dir, err := download(ctx, config, major)
	if err == nil {
		if found, err = inspect(ctx, dir, owner); err == nil {
			return found, nil
		}
	}
	return binaries{}, missing(major, seen, err)
}

func givenBinaries(ctx context.Context, config Config, owner *account, major int) (binaries, error) {
	dir, err := filepath.Abs(config.BinDir)
	if err != nil {
		return binaries{}, err
	}
	for _, name := range []string{"initdb", "postgres"} {
		if !isProgram(filepath.Join(dir, name)) {
			return binaries{}, fmt.Errorf("no program %s in %s", name, dir)
		}
	}
	found, err := inspect(ctx, dir, owner)
	if err != nil {
		return binaries{}, err
	}
	if major != 0 && major != found.major {
		return binaries{}, fmt.Errorf("made by PostgreSQL %d, which version %s in %s cannot run", major, found.version, dir)
	}
	return found, nil
}

// searchBinaries returns the first usable installation, and descriptions of the
// unusable ones before it.
func searchBinaries(ctx context.Context, where places, owner *account, major int) (binaries, []string) {
	var seen []string
	for _, dir := range where.dirs() {
		found, err := inspect(ctx, dir, owner)
		switch {
		case err == nil && (major == 0 || major == found.major):
			return found, nil
		case err == nil:
			seen = append(seen, found.version+" in "+dir)
		default:
			seen = append(seen, err.Error())
		}
	}
	return binaries{}, seen
}

// inspect runs postgres --version as the account that will run the server. This also
// checks that the account may run the program.
func inspect(ctx context.Context, dir string, owner *account) (binaries, error) {
	found := binaries{dir: dir}
	out, err := owner.command(ctx, "/", found.postgres(), "--version").Output()
	if errors.Is(err, os.ErrPermission) && owner != nil {
		return found, fmt.Errorf("user %q may not run %s", owner.name, found.postgres())
	}
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return found, fmt.Errorf("%s --version: %w: %s", found.postgres(), err, strings.TrimSpace(string(exit.Stderr)))
	}
	if err != nil {
		return found, fmt.Errorf("%s --version: %w", found.postgres(), err)
	}
	if found.version, found.major, err = parseVersion(string(out)); err != nil {
		return found, err
	}
	if found.major < minMajor {
		return found, fmt.Errorf("%s is PostgreSQL %s, older than %d", found.postgres(), found.version, minMajor)
	}
	return found, nil
}

// parseVersion reads a line like "postgres (PostgreSQL) 15.4 (Debian 15.4-1)".
func parseVersion(line string) (version string, major int, err error) {
	_, rest, _ := strings.Cut(line, "(PostgreSQL) ")
	fields := strings.Fields(rest)
	if len(fields) == 0 || len(numbers(fields[0])) == 0 {
		return "", 0, fmt.Errorf("not a version of PostgreSQL: %q", strings.TrimSpace(line))
	}
	return fields[0], numbers(fields[0])[0], nil
}

// missing is the error that tells the user which PostgreSQL to install.
func missing(major int, seen []string, downloading error) error {
	if major != 0 {
		found := "none found"
		if len(seen) > 0 {
			found = "found " + strings.Join(seen, ", ")
		}
		return fmt.Errorf("made by PostgreSQL %d: install that version (%s; download: %w)", major, found, downloading)
	}
	found := ""
	if len(seen) > 0 {
		found = "not usable: " + strings.Join(seen, ", ") + "; "
	}
	return fmt.Errorf("no initdb and postgres found: install PostgreSQL %d or newer (Debian: postgresql, Fedora: postgresql-server, Homebrew: postgresql@18) or set the directory of its binaries (%sdownload: %w)",
		minMajor, found, downloading)
}
