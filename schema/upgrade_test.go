package schema_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/schema"
)

// A database of each released schema, and of the present one, is upgraded while
// events are published and claimed. No statement fails, and no event is lost. Seed 001.4
func TestUpgradeUnderLoad(t *testing.T) {
	t.Parallel()
	for name, script := range releases(t) {
		t.Run(name, func(t *testing.T) {
			upgradeUnderLoad(t, install(t, script))
		})
	}
}

// releases returns the schemas to upgrade from, as scripts of schema print: the
// released ones in testdata/releases, and the present one.
func releases(t *testing.T) map[string]string {
	t.Helper()
	var present bytes.Buffer
	if err := schema.Print(&present); err != nil {
		t.Fatal(err)
	}
	scripts := map[string]string{"present": present.String()}
	names, err := filepath.Glob("testdata/releases/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		script, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		scripts[strings.TrimSuffix(filepath.Base(name), ".sql")] = string(script)
	}
	return scripts
}

// install returns the URL of a new database after running the script in it.
func install(t *testing.T, script string) string {
	t.Helper()
	url := posthorntest.EmptyDatabase(t)
	if _, err := connect(t, url).PgConn().Exec(context.Background(), script).ReadAll(); err != nil {
		t.Fatal(err)
	}
	return url
}

func upgradeUnderLoad(t *testing.T, url string) {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	run(t, connect(t, url), `select posthorn.define_group('default', 'upgrade')`)
	var stop, allPublished atomic.Bool
	var published, handled atomic.Int64
	var publishers, workers sync.WaitGroup
	for range 3 {
		publishers.Go(func() {
			for !stop.Load() && !t.Failed() {
				published.Add(affect(t, pool, `select posthorn.publish('default', 'upgraded', '{}')`))
			}
		})
	}
	for range 2 {
		workers.Go(func() {
			for (!allPublished.Load() || handled.Load() < published.Load()) && !t.Failed() {
				handled.Add(handleSome(t, pool))
			}
		})
	}
	defer workers.Wait() // also if the test has failed
	defer publishers.Wait()
	defer stop.Store(true)
	await.True(t, "50 events are handled", func() bool { return handled.Load() > 50 || t.Failed() })
	next := nextRelease(t)
	if report, err := next.Migrate(ctx, pool, schema.Options{}); err != nil || len(report.Applied) == 0 {
		t.Errorf("upgrade applied %v: %v", report.Applied, err)
	}
	before := handled.Load()
	await.True(t, "50 more are handled after the upgrade", func() bool { return handled.Load() > before+50 || t.Failed() })
	stop.Store(true)
	publishers.Wait()
	allPublished.Store(true)
	workers.Wait()
	if handled.Load() != published.Load() {
		t.Errorf("published %d, handled %d", published.Load(), handled.Load())
	}
}

// nextRelease is the present schema with a revision that no release has, and with a
// migration that changes a table used by every claim.
func nextRelease(t *testing.T) schema.Bundle {
	t.Helper()
	files := present(t)
	files["revision"] = file("1000000 -")
	files[fmt.Sprintf("migrations/%03d_next.sql", schema.Embedded().Migration+1)] = file("alter table posthorn.groups add column next int;\n")
	return schema.Load(t, files)
}

// present returns the files of the schema.
func present(t *testing.T) fstest.MapFS {
	t.Helper()
	files := fstest.MapFS{}
	for _, pattern := range []string{"bootstrap.sql", "migrations/*.sql", "functions/*/*/*.sql"} {
		names, err := filepath.Glob(pattern)
		if err != nil || len(names) == 0 {
			t.Fatal(pattern, err)
		}
		for _, name := range names {
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			files[name] = file(string(content))
		}
	}
	return files
}

func handleSome(t *testing.T, pool *pgxpool.Pool) int64 {
	rows, err := pool.Query(context.Background(), `select lease, attempt from posthorn.claim('default', 'upgrade', 'worker', 20)`)
	if err != nil {
		t.Error(err)
		return 0
	}
	leases, err := pgx.CollectRows(rows, pgx.RowToStructByPos[struct{ ID, Attempt int64 }])
	if err != nil {
		t.Error(err)
		return 0
	}
	if len(leases) > 0 {
		affect(t, pool, `select posthorn.settle(`+strconv.FormatInt(leases[0].ID, 10)+`, `+strconv.FormatInt(leases[0].Attempt, 10)+`)`)
	}
	return int64(len(leases))
}

func affect(t *testing.T, pool *pgxpool.Pool, sql string) int64 {
	tag, err := pool.Exec(context.Background(), sql)
	if err != nil {
		t.Errorf("%s: %v", sql, err)
	}
	return tag.RowsAffected()
}
