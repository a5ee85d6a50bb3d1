package guarantee

import (
	"fmt"
	"strings"
	"testing"
)

// publish has a fast path for plain events, and two inserts. Each path must detect
// every error in a message.
func TestPublishRefusesInvalidMessages(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.publish('default', 'e', stream => 'named')")
	long := "repeat('x', 256)"
	for _, stream := range []string{"default", "named", "new"} {
		for _, arguments := range []string{
			"null", "''", long, `E'a\nb'`, `E'a\x7f'`,
			"'e', key => " + long, `'e', key => E'a\tb'`, "'', key => 'k'",
			"'e', payload => null::json",
			`'e', payload => '{"a": "\u0000"}'::json`, `'e', payload => '"\\\u0000"'::json`,
			`'e', payload => (repeat('["[]",', 1001) || '1' || repeat(']', 1001))::json`,
			`'e', metadata => (repeat('[', 1001) || repeat(']', 1001))::json`,
			`'e', metadata => '{"a": "\u0000"}'`, `'e', key => 'k', metadata => '"\u0000"'`,
			"'e', payload => json_build_array(repeat('x', 1048576))",
			"'e', metadata => json_build_array(repeat('x', 1048576))",
			"'e', tags => '{\"\"}'", "'e', dedup_key => ''",
		} {
			s.refused("PH004", fmt.Sprintf("select posthorn.publish('default', %s, stream => '%s')", arguments, stream))
		}
		s.refused("PH001", fmt.Sprintf("select posthorn.publish('nowhere', 'e', stream => '%s')", stream))
		s.refused("PH001", fmt.Sprintf("select posthorn.publish(null, 'e', stream => '%s')", stream))
	}
	equal(t, "events", value[int](s, "select count(*) from posthorn.events"), 1)
}

// Plain and other events are stored alike, with defaults for omitted fields. (seed
// 001.9–11)
func TestPublishKeepsAllFields(t *testing.T) {
	t.Parallel()
	s := database(t)
	long, large := strings.Repeat("x", 255), `["`+strings.Repeat("x", 2000)+`"]`
	messages := []struct{ typ, key, tags, payload, metadata string }{
		{typ: "e", payload: `{"a" : 1}`},
		{typ: long, key: long, payload: `"\\u0000"`, metadata: `{"b" : 2}`},
		{typ: "ü", key: "", tags: "{red}", payload: "null", metadata: "{}"},
		{typ: "e", key: "k", payload: large, metadata: large},
	}
	for _, stream := range []string{"default", "named"} {
		var want []string
		for range 2 { // in a new stream, and in a known one
			for _, m := range messages {
				id := value[int64](s, `select posthorn.publish('default', $1, $2::text::json, $3, nullif($4, ''),
					nullif($5, '')::text[], nullif($6, '')::json)`, m.typ, m.payload, stream, m.key, m.tags, m.metadata)
				tags, metadata := m.tags, m.metadata
				if tags == "" {
					tags = "{}"
				}
				if metadata == "" {
					metadata = "{}"
				}
				want = append(want, strings.Join([]string{fmt.Sprint(id), stream, m.typ, m.key, tags, m.payload, metadata}, "|"))
			}
		}
		equal(t, "events", column[string](s, `
			select concat_ws('|', e.id, s.name, e.type, coalesce(e.key, ''), e.tags, e.payload, e.metadata)
			from posthorn.events e
			join posthorn.streams s on s.id = e.stream_id and s.namespace_id = e.namespace_id
			where s.name = $1 order by e.id`, stream), want)
	}
}

// publish relies on the ids of the default stream.
func TestDefaultStreamIsTheFirst(t *testing.T) {
	t.Parallel()
	s := database(t)
	equal(t, "ids", value[[]int64](s, `
		select array[n.id, s.id] from posthorn.namespaces n join posthorn.streams s on s.namespace_id = n.id
		where n.namespace = 'default' and s.namespace = 'default' and s.name = 'default'`), []int64{1, 1})
}

// A claim makes its transaction commit without waiting for the disk. Events published
// later in the same transaction must still be durable.
func TestPublishingInTheTransactionOfAClaimIsDurable(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	setting := func() string { return value[string](s, "select current_setting('synchronous_commit')") }
	s.exec("set synchronous_commit = on")
	for _, stream := range []string{"default", "named", "named"} {
		s.exec("select posthorn.publish('default', 'e')")
		s.exec("begin")
		s.exec("select posthorn.claim('default', 'billing', 'w')")
		equal(t, "after the claim", setting(), "off")
		s.exec("select posthorn.publish('default', 'e', stream => $1)", stream)
		equal(t, "after publishing", setting(), "on")
		s.exec("commit")
	}
}

// Every way to publish refuses JSON that is nested deeper than 500, and accepts any
// other.
func TestNesting(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.subscribe('default', 'billing', 'a', '{}'), posthorn.enqueue('default', 'held', tags => '{mail}')")
	s.exec("select posthorn.claim_jobs('default', 'w', '{mail}', 1, '1 hour')")
	for _, call := range []string{
		"publish('default', 'e', $1::json)",
		"publish('default', 'e', $1::json, tags => '{a}')",
		"publish('default', 'e', metadata => $1::json)",
		"publish('default', 'e', $1::json, deliver_at => '2999-01-01')",
		"publish_many('default', jsonb_build_array(jsonb_build_object('type', 'e', 'payload', $1::jsonb)))",
		"publish_batch('default', '{e}', array[$1::json])",
		"publish_batch('default', '{e}', '{\"{}\"}'::json[], metadata => array[$1::json])",
		"publish_to('default', 'billing', 'a', 'e', $1::json)",
		"append_event_log('default', 'e', $1::jsonb, 'node')",
		"schedule('default', 's', '@daily', 'e', $1::json)",
		"enqueue('default', 'job', $1::json, '{other}')",
		"enqueue('default', 'job', metadata => $1::json, tags => '{other}')",
		"enqueue_batch('default', '{job}', array[$1::json], '{\"{other}\"}')",
		"heartbeat_job((select job from posthorn.running_jobs), 'w', progress => $1::json)",
		"define_namespace('shop', $1::json)",
		"complete_job((select job from posthorn.running_jobs), 'w', result => $1::json)",
	} {
		for _, deep := range []string{"[", `{"a":`} {
			nested := func(n int) string {
				end := map[string]string{"[": "]", `{"a":`: "}"}[deep]
				return strings.Repeat(deep, n-1) + "{}" + strings.Repeat(end, n-1)
			}
			s.refused("PH004", "select posthorn."+call, nested(501))
			if deep == "[" {
				s.exec("select posthorn."+call, nested(500))
			}
		}
	}
}
