package guarantee

import (
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/posthorntest"
)

// No program publishes an event that others would take for one of Posthorn itself, on any way into the log.
func TestTypesOfPosthornAreReserved(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("create table public.t (id int primary key)")
	s.exec(`create schema "posthorn.x"`)
	s.exec(`create table "posthorn.x".t (id int primary key)`)
	s.exec("select posthorn.subscribe('default', 'g', 's', '{}')")
	s.exec("create function public.hook(change jsonb) returns jsonb language sql as $$select change || '{\"type\": \"posthorn.webhook.disabled\"}'$$")
	s.exec("select posthorn.push_table_changes('public.t', hook => 'public.hook(jsonb)')")
	for _, sql := range []string{
		"select posthorn.publish('default', TYPE)",
		"select posthorn.publish('default', TYPE, stream => 'orders')",
		"select posthorn.publish('default', TYPE, '{}'::jsonb)",
		"select posthorn.publish('default', TYPE, tags => '{a}')",
		"select posthorn.publish('default', TYPE, dedup_key => 'a')",
		"select posthorn.publish('default', TYPE, deliver_at => posthorn.now() + interval '1 hour')",
		"select posthorn.publish_with_care('default', TYPE, '{}', 'default', null, '{}', '{}', null, null)",
		"select posthorn.publish_many('default', jsonb_build_array(jsonb_build_object('type', TYPE)))",
		"select posthorn.publish_batch('default', array['a', TYPE], array['{}', '{}']::json[])",
		"select posthorn.publish_in_turn('default', array['a', TYPE], array['{}', '{}']::json[])",
		"select posthorn.publish_to('default', 'g', 's', TYPE)",
		"select posthorn.append_event_log('default', TYPE, '{}', 'node-1')",
		"insert into posthorn.outbox_event (stream_name, event_type, payload) values ('orders', TYPE, '{}')",
		"select posthorn.schedule('default', 'nightly', '@daily', TYPE)",
		"insert into public.t values (1)",
		`select posthorn.push_table_changes('"posthorn.x".t')`,
	} {
		if err := s.refused("PH004", strings.ReplaceAll(sql, "TYPE", "'posthorn.webhook.disabled'")); !strings.Contains(err.Message, "reserved for events of Posthorn itself") {
			t.Errorf("%s: %s", sql, err.Message)
		}
	}
	s.exec("select posthorn.publish('default', 'posthorn'), posthorn.publish('default', 'posthornology.began')")
	s.exec("select posthorn.enqueue('default', 'posthorn.is a title')") // a job has no type
	equal(t, "events", value[int](s, "select count(*) from posthorn.events where type ^@ 'posthorn.'"), 0)
}

// An event of the Posthorn of another database has another type here: it says nothing of this one.
func TestImportMapsReservedTypes(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t)
	i, err := pg.DefineImport(t.Context(), ph.Pool(), "default", "in", "redis://r", "redis", nil)
	if err != nil {
		t.Fatal(err)
	}
	lead, err := pg.LeadImport(t.Context(), ph.Pool(), i, importerA, 10*time.Second, 0)
	if err != nil {
		t.Fatal(err)
	}
	part := importPart("", "3", 1, 2, 3)
	part[0].Events[1].Type = "posthorn.webhook.disabled"
	if n, err := pg.ImportEvents(t.Context(), ph.Pool(), lead, part); n != 3 || err != nil {
		t.Fatal(n, err)
	}
	types, err := pg.Value[string](t.Context(), ph.Pool(), "list types", "select string_agg(type, ' ' order by id) from posthorn.events")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "types", types, "e imported.posthorn.webhook.disabled e")
}
