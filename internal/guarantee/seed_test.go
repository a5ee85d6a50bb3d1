package guarantee

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// The tables that the seed documents describe have the same columns in the same
// order. Additional columns come after them.
//
// seed 000.7, 000.8, 000.11, 000.13, 000.16, 000.58, 001.13, 001.21, 003.4, 003.14,
// 003.28
func TestTablesOfTheSeeds(t *testing.T) {
	t.Parallel()
	s := database(t)
	for table, want := range map[string][]string{
		"namespaces": {"namespace text", "created_at timestamp with time zone", "metadata jsonb"},
		"nodes": {
			"node_id text", "namespace text", "display_name text", "description text", "metadata jsonb",
			"registered_at timestamp with time zone", "last_heartbeat timestamp with time zone",
		},
		"event_log": {
			"event_id bigint", "namespace text", "event_type text", "payload jsonb", "emitted_at timestamp with time zone",
			"producer_node_id text", "scheduled_task_id uuid", "metadata jsonb",
		},
		"scheduled_tasks": {
			"task_id uuid", "namespace text", "job_id bigint", "name text", "cron_expression text", "event_type text", "payload jsonb",
			"timezone text", "active boolean", "created_at timestamp with time zone", "updated_at timestamp with time zone",
		},
		"outbox_event": {
			"id bigint", "stream_name text", "event_type text", "payload jsonb", "metadata jsonb",
			"created_at timestamp with time zone", "published_at timestamp with time zone",
		},
		"stream_leases": {
			"stream_name text", "role text", "owner_id text", "lease_until timestamp with time zone", "checkpoint text",
			"updated_at timestamp with time zone",
		},
		"stream_policies": {
			"stream_name text", "security_level text", "encryption_alg text", "kms_key_id text", "dek_rotation_days integer",
			"active_key_version integer", "created_at timestamp with time zone", "updated_at timestamp with time zone",
		},
		"subscriptions": {"group_id text", "conditions_sql text", "params jsonb"},
		"config":        {"key text", "value text"},
	} {
		got := column[string](s, `
			select a.attname || ' ' || format_type(a.atttypid, null) from pg_attribute a
			where a.attrelid = ('posthorn.' || $1)::regclass and a.attnum > 0 and not a.attisdropped
			  and a.attname <> 'namespace_id' and (a.attname <> 'id' or $1 = 'outbox_event') -- ours
			order by a.attnum limit $2`, table, len(want))
		equal(t, table, got, want)
	}
	s.refused("23503", "insert into posthorn.nodes (node_id, namespace) values ('a', 'nowhere')")
	s.refused("PH001", `insert into posthorn.scheduled_tasks (namespace, name, cron_expression, event_type) values ('nowhere', 'a', '@daily', 'e')`)
}

// The columns that the documents call JSONB can be queried as jsonb, even if the log
// contains a document that jsonb cannot represent.
//
// seed 000.13, 003.4
func TestDocumentsAreJSONB(t *testing.T) {
	t.Parallel()
	s := database(t)
	for _, payload := range []string{
		`{"a": 1, "b": [2]}`, `{"b":[2],"a":1.0}`, `{"a":1,"c":"\ud800x"}`, `{"a":1e999999}`,
		`{"d":"ab1e5678","big":` + strings.Repeat("7", 200_000) + `}`, `{"e":"1e5678"}`,
	} {
		s.exec("select posthorn.publish('default', 'e', $1::text::json, metadata => $1::text::json)", payload)
	}
	s.exec("select posthorn.define_namespace('n', '{\"a\": 1}')")
	s.exec("select posthorn.schedule('default', 'task', '@daily', 'e', '{\"a\": 1}')")
	for _, view := range []string{"event_log", "outbox_event"} {
		for _, document := range []string{"payload", "metadata"} {
			from := fmt.Sprintf(" from posthorn.%s where %s @> '{\"a\":1}'", view, document)
			equal(t, view+": contained in "+document, value[int](s, "select count(*)"+from), 3)
			equal(t, view+": distinct "+document, value[int](s, "select count(*) from (select distinct "+document+from+") d"), 2)
			equal(t, view+": without half a pair", column[string](s, "select "+document+"->>'c'"+from+" and "+document+" ? 'c'"), []string{"x"})
		}
		equal(t, view+": too long a number", value[int](s, "select count(*) from posthorn."+view+" where jsonb_typeof(payload) = 'string' and payload #>> '{}' ~ '^{\"(a\":1e999999|d.*)}'"), 2)
		equal(t, view+": a string like a number", value[int](s, "select count(*) from posthorn."+view+" where payload = '{\"e\":\"1e5678\"}'"), 1)
	}
	s.exec("set parallel_setup_cost = 0; set parallel_tuple_cost = 0; set min_parallel_table_scan_size = 0; set min_parallel_index_scan_size = 0")
	equal(t, "in parallel", value[int](s, "select count(*) from posthorn.event_log where payload @> '{\"a\":1}'"), 3)
	equal(t, "namespaces", column[string](s, "select namespace from posthorn.namespaces where metadata @> '{\"a\":1}'"), []string{"n"})
	equal(t, "tasks", column[string](s, "select name from posthorn.scheduled_tasks where payload @> '{\"a\":1}'"), []string{"task"})
	s.refused("PH004", `select posthorn.define_namespace('m', '{"a": "\ud800"}')`)
	s.refused("PH004", `select posthorn.schedule('default', 'm', '@daily', 'e', '{"a": 1e999999}')`)
}

// seed 000.1: publishing, handling, scheduling and keeping partitions need only
// Postgres.
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
