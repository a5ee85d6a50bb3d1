package guarantee

import "testing"

// seed 001.3: dropping the schema removes everything, including objects that Posthorn
// made later, and Posthorn can be installed in the same database again.
func TestDroppingTheSchemaRemovesEverything(t *testing.T) {
	t.Parallel()
	s := database(t)
	before := column[string](s, "select nspname::text from pg_namespace order by 1")
	s.exec("create table public.orders (id int primary key, state text)")
	s.exec("select posthorn.push_table_changes('public.orders')")
	s.exec(`select posthorn.subscribe('default', 'g', 'a', '{"conditions_sql": "e.topic = ''x''"}')`)
	s.exec("select posthorn.publish('default', 'x')")

	s.exec("drop schema posthorn cascade")
	equal(t, "schemas", append(column[string](s, "select nspname::text from pg_namespace order by 1"), "posthorn"), append(without(before, "posthorn"), "posthorn"))
	equal(t, "triggers", value[int](s, "select count(*) from pg_trigger where tgrelid = 'public.orders'::regclass"), 0)
	s.exec("insert into public.orders values (1, 'new')")
	equal(t, "functions", value[int](s, "select count(*) from pg_proc p where p.proowner in (select oid from pg_roles where rolname like 'posthorn\\_%')"), 0)
}

func without(values []string, value string) []string {
	var rest []string
	for _, v := range values {
		if v != value {
			rest = append(rest, v)
		}
	}
	return rest
}
