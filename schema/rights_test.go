package schema_test

import (
	"slices"
	"testing"

	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/schema"
)

// RolesFor says what grant_role grants.
func TestRolesForAnObject(t *testing.T) {
	t.Parallel()
	type object struct {
		Kind, Name string
		Roles      []string
	}
	objects := rows[object](t, connect(t, posthorntest.Database(t)), `
		select 'function', p.proname::text, array(select r from unnest(array['posthorn_publisher', 'posthorn_consumer', 'posthorn_admin']) r
			where exists (select from unnest(p.oids) f where has_function_privilege(r, f, 'execute')))
		from (select proname, array_agg(oid) as oids from pg_proc where pronamespace = 'posthorn'::regnamespace group by 1) p
		union all
		select case c.relkind when 'v' then 'view' else 'table' end, c.relname::text,
			array(select r from unnest(array['posthorn_consumer', 'posthorn_admin']) r where has_table_privilege(r, c.oid, 'select'))
		from pg_class c
		where c.relnamespace = 'posthorn'::regnamespace and c.relkind in ('r', 'p', 'v') and not c.relispartition
			and c.relname <> 'schema_version' -- each role may read it`)
	if len(objects) < 300 {
		t.Fatalf("found only %d functions, tables and views", len(objects))
	}
	for _, o := range objects {
		want := o.Roles
		if len(want) > 1 { // an admin may do all that the others may
			want = slices.DeleteFunc(want, func(role string) bool { return role == "posthorn_admin" })
		}
		if got := schema.RolesFor(o.Kind, o.Name); !slices.Equal(got, want) {
			t.Errorf("%s %s: got %v, the database has %v", o.Kind, o.Name, got, want)
		}
	}
	if got := schema.RolesFor("table", "orders"); got != nil {
		t.Errorf("a table of another schema: got %v", got)
	}
}
