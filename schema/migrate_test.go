package schema_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/schema"
)

func TestMigrateEmptyDatabase(t *testing.T) {
	conn := connect(t, posthorntest.EmptyDatabase(t))
	b := schema.Load(t, small(1, 42))

	report := migrate(t, b, conn)

	want := []string{"bootstrap.sql", "migrations/001_parts.sql", "functions/core/log/answer.sql"}
	if diff := cmp.Diff(want, report.Applied); diff != "" {
		t.Errorf("applied (-want +got):\n%s", diff)
	}
	if got := value[int](t, conn, "select posthorn.answer()"); got != 42 {
		t.Errorf("answer = %d, want 42", got)
	}
	if got := value[string](t, conn, "select version || name from posthorn.migrations"); got != "1parts" {
		t.Errorf("recorded %q, want 1parts", got)
	}
	if got := standing(t, b, conn); got != schema.Current {
		t.Errorf("standing %q, want %q", got, schema.Current)
	}
}

func TestMigrateTwice(t *testing.T) {
	conn := connect(t, posthorntest.EmptyDatabase(t))
	b := schema.Load(t, small(1, 42))
	migrate(t, b, conn)
	before := value[string](t, conn, "select applied_at::text from posthorn.schema_version")

	report := migrate(t, b, conn)

	if len(report.Applied) != 0 || report.From != report.To {
		t.Errorf("second migrate did something: %+v", report)
	}
	if after := value[string](t, conn, "select applied_at::text from posthorn.schema_version"); after != before {
		t.Error("second migrate wrote the version row")
	}
}

func TestMigrateAppliesOnlyNewFiles(t *testing.T) {
	conn := connect(t, posthorntest.EmptyDatabase(t))
	migrate(t, schema.Load(t, small(1, 42)), conn)

	report := migrate(t, schema.Load(t, small(1, 43, "create table posthorn.more ();")), conn)

	want := []string{"migrations/002_more.sql", "functions/core/log/answer.sql"}
	if diff := cmp.Diff(want, report.Applied); diff != "" {
		t.Errorf("applied (-want +got):\n%s", diff)
	}
	if got := value[int](t, conn, "select posthorn.answer()"); got != 43 {
		t.Errorf("answer = %d, want 43", got)
	}
}

func TestFunctionsFollowRevision(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name             string
		revision, answer int
		want             int
		standing         schema.Standing
	}{
		{"newer revision", 6, 43, 43, schema.Behind},
		{"same revision, other functions", 5, 43, 43, schema.Behind},
		{"same revision, same functions", 5, 42, 42, schema.Current},
		{"older revision", 4, 41, 42, schema.Ahead},
	} {
		t.Run(test.name, func(t *testing.T) {
			conn := connect(t, posthorntest.EmptyDatabase(t))
			migrate(t, schema.Load(t, small(5, 42)), conn)
			b := schema.Load(t, small(test.revision, test.answer))
			if got := standing(t, b, conn); got != test.standing {
				t.Errorf("standing %q, want %q", got, test.standing)
			}
			migrate(t, b, conn)
			if got := value[int](t, conn, "select posthorn.answer()"); got != test.want {
				t.Errorf("answer = %d, want %d", got, test.want)
			}
		})
	}
}

func TestOlderBinaryKeepsWorking(t *testing.T) {
	conn := connect(t, posthorntest.EmptyDatabase(t))
	migrate(t, schema.Load(t, small(1, 43, "create table posthorn.more ();")).CompatibleFrom(1), conn)
	older := schema.Load(t, small(9, 42))
	var log bytes.Buffer

	report, err := older.Migrate(t.Context(), conn, schema.Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})

	if err != nil || len(report.Applied) != 0 {
		t.Errorf("migrate = %+v, %v; want nothing done", report, err)
	}
	if !strings.Contains(log.String(), "database schema is newer than this binary; upgrade the binary") {
		t.Errorf("log %q lacks the warning that the database is newer", &log)
	}
	if err := older.Check(t.Context(), conn); err != nil {
		t.Errorf("check: %v", err)
	}
	if got := value[int](t, conn, "select posthorn.answer()"); got != 43 {
		t.Errorf("answer = %d: the older binary touched the database", got)
	}
}

func TestTooOldBinaryRefuses(t *testing.T) {
	conn := connect(t, posthorntest.EmptyDatabase(t))
	migrate(t, schema.Load(t, small(1, 43, "create table posthorn.more ();")).CompatibleFrom(2), conn)
	older := schema.Load(t, small(1, 42))

	_, err := older.Migrate(t.Context(), conn, schema.Options{})
	_, dryErr := older.DryRun(t.Context(), conn)
	for _, err := range []error{err, dryErr, older.Check(t.Context(), conn)} {
		if !errors.Is(err, schema.ErrTooNew) {
			t.Fatalf("error = %v, want ErrTooNew", err)
		}
		if !strings.Contains(err.Error(), "needs a binary with schema 2 or newer; this one has 1.1") {
			t.Errorf("error %q does not name the needed schema", err)
		}
	}
}

// No migration leads from a database with another history to the binary's schema.
// Using its tables would fail later, with obscure errors.
func TestOtherHistoryIsRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]struct {
		sql   string
		files map[string]string
	}{
		"another migration":     {"", map[string]string{"migrations/001_parts.sql": "create table posthorn.parts (id bigint);\n"}},
		"another, and one more": {"", map[string]string{"migrations/001_parts.sql": "create table posthorn.parts (id bigint);\n", "migrations/002_more.sql": "select 1;"}},
		"no history":            {"alter table posthorn.schema_version drop column history", nil},
	} {
		t.Run(name, func(t *testing.T) {
			conn := connect(t, posthorntest.EmptyDatabase(t))
			migrate(t, schema.Load(t, small(1, 42)), conn)
			run(t, conn, change.sql)
			fsys := small(1, 43)
			for name, sql := range change.files {
				fsys[name] = file(sql)
			}
			b := schema.Load(t, fsys)

			_, err := b.Migrate(t.Context(), conn, schema.Options{})
			_, dryErr := b.DryRun(t.Context(), conn)
			for _, err := range []error{err, dryErr, b.Check(t.Context(), conn)} {
				if !errors.Is(err, schema.ErrOtherHistory) {
					t.Fatalf("error = %v, want ErrOtherHistory", err)
				}
				if !strings.Contains(err.Error(), "use a new database, or delete all events with: drop schema posthorn cascade") {
					t.Errorf("error %q does not name the remedy", err)
				}
			}
			if got := value[int](t, conn, "select posthorn.answer()"); got != 42 {
				t.Errorf("answer = %d: the database was touched", got)
			}
		})
	}
}

func TestCheckAsksForMigration(t *testing.T) {
	conn := connect(t, posthorntest.EmptyDatabase(t))
	b := schema.Load(t, small(2, 42))
	check := func() {
		t.Helper()
		err := b.Check(t.Context(), conn)
		if !errors.Is(err, schema.ErrNotMigrated) || !strings.Contains(err.Error(), "run: posthorn migrate") {
			t.Errorf("check = %v, want ErrNotMigrated with the command to run", err)
		}
	}
	check()
	migrate(t, schema.Load(t, small(1, 41)), conn)
	check()
	migrate(t, b, conn)
	if err := b.Check(t.Context(), conn); err != nil {
		t.Errorf("check after migrate: %v", err)
	}
}

func TestErrorNamesFileAndPlace(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, sql, want string }{
		{"syntax", "-- größer\n\ncreate tabel posthorn.x ();\n", "migrations/002_more.sql:3:"},
		{"missing table", "create table posthorn.x ();\nselect 1;\nselect * from posthorn.nothing;\n", "migrations/002_more.sql:3:"},
		{"without position", "create table posthorn.x ();\nselect 1;\ncreate table posthorn.x ();\n", "migrations/002_more.sql: statement 3:"},
		{"while returning rows", "select 1 / (2 - i) from generate_series(1, 3) i;\n", "migrations/002_more.sql: statement 1:"},
	} {
		t.Run(test.name, func(t *testing.T) {
			conn := connect(t, posthorntest.EmptyDatabase(t))
			_, err := schema.Load(t, small(1, 42, test.sql)).Migrate(t.Context(), conn, schema.Options{})
			if err == nil || !strings.Contains(err.Error(), "migrate: "+test.want) {
				t.Errorf("error = %v, want it to contain %q", err, test.want)
			}
		})
	}
}

func TestFailureLeavesNothing(t *testing.T) {
	conn := connect(t, posthorntest.EmptyDatabase(t))
	b := schema.Load(t, small(1, 42, "create table posthorn.more ();", "create table posthorn.more ();"))

	if _, err := b.Migrate(t.Context(), conn, schema.Options{}); err == nil {
		t.Fatal("migrate succeeded")
	}
	if value[bool](t, conn, "select to_regnamespace('posthorn') is not null") {
		t.Error("the schema exists")
	}
	if got := standing(t, b, conn); got != schema.Absent {
		t.Errorf("standing %q, want %q", got, schema.Absent)
	}
}

func TestDryRunChangesNothing(t *testing.T) {
	conn := connect(t, posthorntest.EmptyDatabase(t))
	b := schema.Load(t, small(1, 42))

	steps, err := b.DryRun(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range steps {
		run(t, conn, step.SQL)
	}
	if got := standing(t, b, conn); got != schema.Current {
		t.Errorf("standing %q after running the steps by hand, want %q", got, schema.Current)
	}
	if steps, err := b.DryRun(t.Context(), conn); err != nil || len(steps) != 0 {
		t.Errorf("dry run of a migrated database = %v, %v; want nothing", steps, err)
	}
}

// Settings of a role must not change the result of Migrate.
func TestMigrateIgnoresRoleSettings(t *testing.T) {
	url := posthorntest.EmptyDatabase(t)
	conn := connect(t, url)
	name := conn.Config().Database
	for _, setting := range []string{
		"default_transaction_isolation = 'serializable'",
		"default_transaction_read_only = on",
		"search_path = elsewhere",
		"lock_timeout = 1",
		"statement_timeout = 20000",
	} {
		run(t, conn, "set default_transaction_read_only = off; alter database "+name+" set "+setting)
	}
	const checked = `do $$ begin
		assert current_setting('statement_timeout') = '0', 'a time limit of the role holds';
		assert current_setting('transaction_isolation') = 'read committed', 'the isolation level of the role holds';
	end $$;`
	migrate(t, schema.Load(t, small(1, 42, checked)), connect(t, url))
}

// seed 000.1
func TestMigrateWithoutSuperuser(t *testing.T) {
	t.Parallel()
	url := posthorntest.EmptyDatabase(t)
	admin := connect(t, url)
	role := admin.Config().Database + "_owner"
	run(t, admin, "create role "+role+" nosuperuser")
	run(t, admin, "alter database "+admin.Config().Database+" owner to "+role)
	t.Cleanup(func() {
		run(t, admin, "reassign owned by "+role+" to current_user; drop owned by "+role+"; drop role "+role)
	})

	if _, err := schema.Migrate(t.Context(), connectAs(t, url, role), schema.Options{}); err != nil {
		t.Error(err)
	}
}

// One role may migrate several databases of a cluster at once, although each
// migration grants the same membership in posthorn_condition, which belongs to the
// cluster.
func TestMigrateBesideAnotherDatabase(t *testing.T) {
	t.Parallel()
	posthorntest.Database(t) // creates the role posthorn_condition
	url := posthorntest.EmptyDatabase(t)
	admin, rival := connect(t, url), connect(t, url)
	role := admin.Config().Database + "_owner"
	run(t, admin, "create role "+role+" nosuperuser createrole; alter database "+admin.Config().Database+" owner to "+role)
	t.Cleanup(func() {
		run(t, admin, "reassign owned by "+role+" to current_user; drop owned by "+role+"; drop role "+role)
	})
	run(t, rival, "begin; grant posthorn_condition to "+role)
	conn := connectAs(t, url, role)
	migrated := make(chan error, 1)
	go func() {
		_, err := schema.Migrate(t.Context(), conn, schema.Options{LockTimeout: await.Limit})
		migrated <- err
	}()
	await.True(t, "the migration waits for the other transaction's grant, or has ended", func() bool {
		return len(migrated) > 0 || value[bool](t, admin, fmt.Sprintf("select exists (select from pg_locks where pid = %d and not granted)", conn.PgConn().PID()))
	})
	run(t, rival, "commit")
	if err := await.Value(t, "the end of the migration", migrated); err != nil {
		t.Error(err)
	}
}

// Providers of managed databases often give a role the rights of one schema only.
func TestMigrateIntoSchemaMadeByAdministrator(t *testing.T) {
	url := posthorntest.EmptyDatabase(t)
	admin := connect(t, url)
	role := admin.Config().Database + "_owner"
	run(t, admin, "create role "+role+" nosuperuser; create schema posthorn authorization "+role)
	t.Cleanup(func() { run(t, admin, "drop owned by "+role+"; drop role "+role) })

	migrate(t, schema.Load(t, small(1, 42)), connectAs(t, url, role))
}

func connectAs(t *testing.T, url, role string) *pgx.Conn {
	t.Helper()
	conn := connect(t, url)
	run(t, conn, "set session authorization "+role)
	return conn
}

// A pooler may give the server connection to another client after each transaction.
func TestMigrateLeavesNothingInSession(t *testing.T) {
	conn := connect(t, posthorntest.EmptyDatabase(t))
	const session = `select string_agg(name || '=' || setting, ' ' order by name)
from pg_settings where source = 'session' and name not like 'transaction_%' or name = 'search_path'`
	before := value[string](t, conn, session)

	migrate(t, schema.Load(t, small(1, 42)), conn)

	if diff := cmp.Diff(before, value[string](t, conn, session)); diff != "" {
		t.Errorf("settings (-before +after):\n%s", diff)
	}
	const prepared = `select count(*) from pg_prepared_statements where statement like '%posthorn%' and statement not like '%pg_prepared%'`
	if n := value[int](t, conn, prepared); n != 0 {
		t.Errorf("%d prepared statements are left", n)
	}
}
