package guarantee

import (
	"testing"
	"time"
)

// The tables that the seed documents describe have their columns, in their order;
// what we need besides comes after them.
//
// seed 000.7, 000.8, 000.11, 000.13, 000.16, 000.58
func TestTablesOfTheSeeds(t *testing.T) {
	t.Parallel()
	s := database(t)
	for table, want := range map[string][]string{
		"namespaces": {"namespace text", "created_at timestamp with time zone", "metadata json"},
		"nodes": {
			"node_id text", "namespace text", "display_name text", "description text", "metadata jsonb",
			"registered_at timestamp with time zone", "last_heartbeat timestamp with time zone",
		},
		"event_log": {
			"event_id bigint", "namespace text", "event_type text", "payload json", "emitted_at timestamp with time zone",
			"producer_node_id text", "scheduled_task_id uuid", "metadata json",
		},
		"scheduled_tasks": {
			"task_id uuid", "namespace text", "job_id bigint", "name text", "cron_expression text", "event_type text", "payload json",
			"timezone text", "active boolean", "created_at timestamp with time zone", "updated_at timestamp with time zone",
		},
	} {
		got := column[string](s, `
			select a.attname || ' ' || format_type(a.atttypid, null) from pg_attribute a
			where a.attrelid = ('posthorn.' || $1)::regclass and a.attnum > 0 and not a.attisdropped
			  and (a.attname <> 'id') -- of namespaces
			order by a.attnum limit $2`, table, len(want))
		equal(t, table, got, want)
	}
	s.refused("23503", "insert into posthorn.nodes (node_id, namespace) values ('a', 'nowhere')")
	s.refused("PH001", `insert into posthorn.scheduled_tasks (namespace, name, cron_expression, event_type) values ('nowhere', 'a', '@daily', 'e')`)
}

// seed 000.1: publishing, handling, scheduling and keeping partitions take Postgres
// and nothing beside it.
func TestNoExtensionIsNeeded(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.schedule("hourly", "once")
	s.turnClock(time.Hour)
	published := s.publish()
	s.exec("select posthorn.tend()")
	equal(t, "events", len(s.drain()), 2)
	equal(t, "the one that was published", s.inLog(published), true)
	s.wantCovered()
	equal(t, "extensions", column[string](s, "select extname from pg_extension where extname <> 'plpgsql'"), []string{})
}
