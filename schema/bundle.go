package schema

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Version identifies a version of the schema.
type Version struct {
	Migration int    `json:"migration"` // the newest migration
	Revision  int    `json:"revision"`  // of the functions; incremented when they change between releases
	Functions string `json:"functions"` // hash of the functions; differs between development builds
}

// String returns migration and revision, for example "3.7".
func (v Version) String() string {
	return fmt.Sprintf("%d.%d", v.Migration, v.Revision)
}

// compare orders versions by age. The hash is not compared: it has no order.
func (v Version) compare(other Version) int {
	return cmp.Or(
		cmp.Compare(v.Migration, other.Migration),
		cmp.Compare(v.Revision, other.Revision),
	)
}

// bundle is the schema that a binary contains.
type bundle struct {
	version        Version
	compatibleFrom int
	migrations     []migration
	functions      []Step
}

type migration struct {
	version int
	name    string // without number and extension
	Step
}

// history returns the hash of each migration.
func (b bundle) history() []string {
	var hashes []string
	for _, m := range b.migrations {
		hashes = append(hashes, hash([]Step{m.Step}))
	}
	return hashes
}

func load(fsys fs.FS) (bundle, error) {
	b := bundle{compatibleFrom: CompatibleFrom}
	var err error
	if b.migrations, err = loadMigrations(fsys); err != nil {
		return bundle{}, err
	}
	if b.functions, err = loadFunctions(fsys); err != nil {
		return bundle{}, err
	}
	number, _, err := loadRevision(fsys)
	if err != nil {
		return bundle{}, err
	}
	// The hash is computed and not read from the file, which is out of date while
	// functions are being changed.
	b.version = Version{Migration: len(b.migrations), Revision: number, Functions: hash(b.functions)}
	return b, nil
}

var migrationName = regexp.MustCompile(`^(\d{3})_([a-z0-9_]+)\.sql$`)

func loadMigrations(fsys fs.FS) ([]migration, error) {
	steps, err := loadSteps(fsys, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	var migrations []migration
	for i, step := range steps {
		match := migrationName.FindStringSubmatch(path.Base(step.Name))
		if match == nil {
			return nil, fmt.Errorf("%s: not named like 001_name.sql", step.Name)
		}
		// The numbers have no gaps, so that one number identifies the applied
		// migrations.
		version, _ := strconv.Atoi(match[1])
		if version != i+1 {
			return nil, fmt.Errorf("%s: expected number %03d", step.Name, i+1)
		}
		migrations = append(migrations, migration{version, match[2], step})
	}
	return migrations, nil
}

// folders are the folders of functions in the order of application, floor by floor: core, rooms, faces. In core
// and among faces each builds on those before it; rooms do not know each other (see TestWalls). The files of a
// folder are applied in lexical order.
var folders = []string{
	"core/base", "core/log", "core/lead", "core/group", "core/dead_letter", "core/job", "core/node", "core/upkeep",
	"room/projection", "room/reader", "room/schedule", "room/archive", "room/relay", "room/seal", "room/webhook", "room/failover",
	"face/admin", "face/look", "face/hooks",
}

// hooks is the file that declares the functions by which core asks other rooms. Each is replaced by a later file.
const hooks = "functions/core/base/hooks.sql"

// last are the files that depend on all others: roles.sql grants functions, and
// install.sql calls them.
var last = []string{"functions/face/admin/roles.sql", "functions/face/admin/install.sql"}

func loadFunctions(fsys fs.FS) ([]Step, error) {
	steps, err := loadSteps(fsys, "functions/*/*/*.sql")
	if err != nil {
		return nil, err
	}
	for _, step := range steps {
		if !slices.Contains(folders, folder(step)) {
			return nil, fmt.Errorf("%s: the folder is none of %s", step.Name, strings.Join(folders, ", "))
		}
	}
	slices.SortStableFunc(steps, func(a, b Step) int {
		return cmp.Or(
			cmp.Compare(slices.Index(last, a.Name), slices.Index(last, b.Name)),
			cmp.Compare(slices.Index(folders, folder(a)), slices.Index(folders, folder(b))),
		)
	})
	return steps, nil
}

func folder(s Step) string { return strings.TrimPrefix(path.Dir(s.Name), "functions/") }

func loadSteps(fsys fs.FS, pattern string) ([]Step, error) {
	names, err := fs.Glob(fsys, pattern)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("no files match %s", pattern)
	}
	var steps []Step
	for _, name := range names {
		sql, err := fs.ReadFile(fsys, name)
		if err != nil {
			return nil, err
		}
		steps = append(steps, Step{Name: name, SQL: string(sql)})
	}
	return steps, nil
}

// loadRevision reads the recorded revision and the hash of the functions that it was
// recorded for.
func loadRevision(fsys fs.FS) (number int, hash string, err error) {
	text, err := fs.ReadFile(fsys, "revision")
	if err != nil {
		return 0, "", err
	}
	if _, err := fmt.Sscanf(string(text), "%d %s", &number, &hash); err != nil {
		return 0, "", fmt.Errorf("revision: %w", err)
	}
	return number, hash, nil
}

func hash(steps []Step) string {
	h := sha256.New()
	for _, s := range steps {
		fmt.Fprintf(h, "%s\x00%s\x00", s.Name, s.SQL)
	}
	return hex.EncodeToString(h.Sum(nil))
}
