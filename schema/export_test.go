package schema

import (
	"context"
	"io"
	"io/fs"
	"testing"
)

// Bundle gives tests outside the package, which may import posthorntest, schemas of
// their own.
type Bundle struct{ bundle }

func Load(t testing.TB, fsys fs.FS) Bundle {
	t.Helper()
	b, err := load(fsys)
	if err != nil {
		t.Fatal(err)
	}
	return Bundle{b}
}

func (b Bundle) CompatibleFrom(migration int) Bundle {
	b.compatibleFrom = migration
	return b
}

func (b Bundle) Migrate(ctx context.Context, db DB, opts Options) (Report, error) {
	return b.migrate(ctx, db, opts)
}

func (b Bundle) Status(ctx context.Context, db Querier) (State, error) { return b.state(ctx, db) }

func (b Bundle) Check(ctx context.Context, db Querier) error { return b.check(ctx, db) }

func (b Bundle) DryRun(ctx context.Context, db Querier) ([]Step, error) { return b.dryRun(ctx, db) }

func (b Bundle) Plan(ctx context.Context, db Querier) (Plan, error) { return b.plan(ctx, db) }

// Locks returns the locks that are planned for a step.
func (s Step) Locks(there map[string]bool) []PlannedLock { return s.locks(there) }

func (b Bundle) Print(w io.Writer) error { return b.print(w) }

func LoadError(fsys fs.FS) error {
	_, err := load(fsys)
	return err
}

func (b Bundle) Functions() []Step { return b.functions }

func Functions() []Step { return embedded().functions }

func Folders() []string { return folders }

const Hooks = hooks

func Folder(s Step) string { return folder(s) }

// Updating reports whether the tests write generated files instead of comparing them.
func Updating() bool { return *update }
