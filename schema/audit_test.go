package schema_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/schema"
)

// A new database has exactly the objects of this binary's SQL, and so does a database
// that was upgraded from a release.
func TestCompareFindsNothing(t *testing.T) {
	t.Parallel()
	databases := map[string]string{"new": posthorntest.Database(t)}
	for name, script := range releases(t) {
		url := install(t, script)
		if _, err := schema.Migrate(t.Context(), connect(t, url), schema.Options{}); err != nil {
			t.Fatal(err)
		}
		databases[name] = url
	}
	for name, url := range databases {
		found, err := schema.Compare(t.Context(), connect(t, url))
		if err != nil {
			t.Fatal(err)
		}
		if len(found.Missing)+len(found.Unexpected) > 0 {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

func TestCompare(t *testing.T) {
	t.Parallel()
	conn := connect(t, posthorntest.Database(t))
	run(t, conn, `select posthorn.subscribe('default', 'g', 's', '{"conditions_sql": "(e.payload->>''a'')::int = 1"}')`)
	run(t, conn, `
		drop function posthorn.tend(boolean); drop table posthorn.ticks cascade;
		create table posthorn.orders (id serial primary key);
		create table posthorn.parts (id int) partition by list (id);
		create table posthorn.part partition of posthorn.parts default;
		create view posthorn.totals as select count(*) from posthorn.orders;
		create type posthorn.mood as enum ('calm');
		create function posthorn.sum_up(n int) returns int language sql as 'select n';
		create extension ltree schema posthorn`)
	found, err := schema.Compare(t.Context(), conn)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"function tend", "table ticks"}, found.Missing); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
	want := []string{"extension ltree", "function posthorn.sum_up(integer)", "table orders", "table parts", "type mood", "view totals"}
	if diff := cmp.Diff(want, found.Unexpected); diff != "" {
		t.Errorf("unexpected (-want +got):\n%s", diff)
	}
}
