package schema_test

import (
	"context"
	"maps"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/schema"
)

// Each step of the installation, of the replacement of all functions, and of a migration with each kind of
// statement takes exactly the locks that are planned for it.
func TestPlanNamesTheLocksThatAreTaken(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	conn := connect(t, posthorntest.EmptyDatabase(t))
	install, err := schema.DryRun(ctx, conn)
	if err != nil {
		t.Fatal(err)
	}
	var again []schema.Step // the functions, as an upgrade runs them
	for _, step := range install {
		if strings.HasPrefix(step.Name, "functions/") {
			again = append(again, step)
		}
	}
	if len(again) == 0 {
		t.Fatal("no functions were found")
	}
	for _, sql := range []string{
		"alter table posthorn.namespaces add column x int",
		"create unique index xs on posthorn.namespaces (x)",
		"create trigger x before insert on posthorn.namespaces for each row execute function suppress_redundant_updates_trigger()",
		"drop trigger x on posthorn.namespaces",
		"create table posthorn.y (id int references posthorn.namespaces)",
		"truncate posthorn.y",
		"create table posthorn.z (id int)",
		"lock table posthorn.z; drop table posthorn.z",
		"alter sequence posthorn.job_news cache 1",
		"-- alter table posthorn.namespaces\ncomment on schema posthorn is 'a; drop table posthorn.namespaces'; select 1",
	} {
		again = append(again, schema.Step{Name: sql, SQL: sql})
	}
	locked := 0
	for i, step := range append(install, again...) {
		relations := relations(t, conn)
		there := map[string]bool{}
		for _, name := range relations {
			there[name] = true
		}
		if fresh := i < len(install); fresh && step.Name == "functions/face/admin/install.sql" {
			there, relations = nil, nil // it makes the first partitions
		}
		planned := map[string]string{}
		for _, l := range step.Locks(there) {
			planned[l.Relation] = l.Lock
		}
		taken := locksOf(t, conn, step, relations)
		if !maps.Equal(planned, taken) {
			t.Errorf("%s: planned are %v, taken were %v", step.Name, planned, taken)
		}
		locked += len(taken)
	}
	if locked < 30 { // views are replaced, among others
		t.Errorf("only %d locks were seen", locked)
	}
}

// relations returns the names of what can be locked, by their ids.
func relations(t *testing.T, conn *pgx.Conn) map[uint32]string {
	t.Helper()
	rows, _ := conn.Query(t.Context(), `
		select c.oid, 'posthorn.' || c.relname from pg_class c
		where c.relnamespace = to_regnamespace('posthorn') and c.relkind in ('r', 'p', 'v', 'm', 'S')`)
	found := map[uint32]string{}
	var id uint32
	var name string
	if _, err := pgx.ForEachRow(rows, []any{&id, &name}, func() error { found[id] = name; return nil }); err != nil {
		t.Fatal(err)
	}
	return found
}

// locksOf runs a step, and returns the strongest lock that it took on each of these relations, where reads
// or writes wait for it.
func locksOf(t *testing.T, conn *pgx.Conn, step schema.Step, relations map[uint32]string) map[string]string {
	t.Helper()
	taken := map[string]string{}
	err := pgx.BeginFunc(context.Background(), conn, func(tx pgx.Tx) error {
		if _, err := conn.PgConn().Exec(t.Context(), "set local check_function_bodies = off; set local search_path = '';"+step.SQL).ReadAll(); err != nil {
			return err
		}
		rows, _ := tx.Query(t.Context(), `
			select relation, (array['SHARE', 'SHARE ROW EXCLUSIVE', 'ACCESS EXCLUSIVE'])[max(strength)]
			from (
				select l.relation, array_position(array['ShareLock', 'ShareRowExclusiveLock', 'AccessExclusiveLock'], l.mode) as strength
				from pg_locks l where l.pid = pg_backend_pid() and l.locktype = 'relation') l
			where strength is not null
			group by relation`)
		var id uint32
		var lock string
		_, err := pgx.ForEachRow(rows, []any{&id, &lock}, func() error {
			if name, there := relations[id]; there {
				taken[name] = lock
			}
			return nil
		})
		return err
	})
	if err != nil {
		t.Fatalf("%s: %v", step.Name, err)
	}
	return taken
}
