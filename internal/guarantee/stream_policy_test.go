package guarantee

import "testing"

const restricted = "select posthorn.restricted_streams('default')"

// Each namespace has its own policies. Their table has the columns of seed 003.28.
func TestStreamPolicies(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.define_namespace('other')")
	s.exec("select posthorn.set_stream_policy('default', 'stream:payroll', 'restricted')")
	s.exec("select posthorn.set_stream_policy('default', 'stream:orders', 'open')")
	s.exec("select posthorn.set_stream_policy('other', 'stream:audit', 'restricted')")
	equal(t, "restricted", column[string](s, restricted), []string{"stream:payroll"})
	equal(t, "levels", column[string](s, `select security_level from posthorn.stream_policies where encryption_alg is null
		and kms_key_id is null and dek_rotation_days is null and active_key_version is null and created_at = updated_at
		order by stream_name`), []string{"restricted", "open", "restricted"})
	s.exec("select posthorn.set_stream_policy('default', 'stream:payroll', 'open')")
	equal(t, "opened", column[string](s, restricted), []string{})
}

func TestBadStreamPoliciesAreRefused(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.refused("PH004", "select posthorn.set_stream_policy('default', 's', 'secret')")
	s.refused("PH004", "select posthorn.set_stream_policy('default', 's', null)")
	s.refused("PH004", "select posthorn.set_stream_policy('default', '', 'open')")
	s.refused("PH001", "select posthorn.set_stream_policy('nowhere', 's', 'open')")
	s.refused("23514", `insert into posthorn.stream_policies (namespace_id, stream_name, security_level, kms_key_id)
		values (1, 's', 'restricted', 'key')`)
}

// A group hands out the events that its subscriptions want, and all events if it has
// none.
func TestStreamsOfAGroup(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	streams := func() []string {
		return column[string](s, "select posthorn.group_streams('default', $1, '{b.c,a}')", group)
	}
	equal(t, "no subscription", streams(), []string{"a", "b.c"})
	s.exec(`select posthorn.subscribe('default', $1, 'one', '{"stream": ["x", "a"]}')`, group)
	equal(t, "a list", streams(), []string{"a"})
	s.exec(`select posthorn.subscribe('default', $1, 'two', '{"stream": "b.*"}')`, group)
	equal(t, "a pattern", streams(), []string{"a", "b.c"})
	s.exec("select posthorn.unsubscribe('default', $1, 'one')", group)
	equal(t, "the pattern alone", streams(), []string{"b.c"})
	s.exec("select posthorn.unsubscribe('default', $1, 'two')", group)
	equal(t, "none left", streams(), []string{})
	s.exec(`select posthorn.subscribe('default', $1, 'sql', '{"conditions_sql": "true"}')`, group)
	equal(t, "a condition", streams(), []string{"a", "b.c"})
	s.exec(`select posthorn.subscribe('default', $1, 'sql', '{"type": "order.placed"}')`, group)
	equal(t, "another filter", streams(), []string{"a", "b.c"})
	s.refused("PH001", "select posthorn.group_streams('default', 'nobody', '{a}')")
}

// A role that may not read a stream does not find its events by any search.
func TestSearchHidesStreams(t *testing.T) {
	t.Parallel()
	s := database(t)
	for _, stream := range []string{"a", "payroll", "b", "payroll"} {
		s.exec(`select posthorn.publish('default', 'paid', '{"x": 1}', $1)`, stream)
	}
	for _, filter := range []string{`{}`, `{"stream": ["a", "b", "payroll"]}`, `{"type": "paid", "payload": {"x": 1}}`} {
		equal(t, filter, column[string](s, "select stream from posthorn.search_events('default', $1, hidden_streams => '{payroll,none}')", filter),
			[]string{"b", "a"})
	}
}
