package guarantee

import (
	"testing"
	"time"
)

func (s *session) register(node string) {
	s.t.Helper()
	equal(s.t, "id", value[string](s, "select posthorn.register_node('default', $1)", node), node)
}

func (s *session) setHandlers(node, handlers string) {
	s.t.Helper()
	s.exec("select posthorn.set_node_handlers('default', $1, $2, $3)", node, group, handlers)
}

// handlers returns the handlers of the test's group, as "node handler patterns".
func (s *session) handlers() []string {
	s.t.Helper()
	return column[string](s, `
		select node || ' ' || handler || ' ' || array_to_string(patterns, ' ')
		from posthorn.group_handlers('default', $1)`, group)
}

func (s *session) nodes() []string {
	s.t.Helper()
	return column[string](s, "select node_id || ' ' || state from posthorn.node_status order by 1")
}

// seed 000.8: all details of a node are stored, and replaced when it registers again.
func TestRegisterNode(t *testing.T) {
	t.Parallel()
	s := database(t)
	const columns = `select concat_ws(' ', node_id, namespace, display_name, description, metadata,
		registered_at = $1::text::timestamptz, last_heartbeat > $1::text::timestamptz) from posthorn.nodes`
	s.exec(`select posthorn.register_node('default', 'api-1', 'API', 'takes orders', '{"v": 1}')`)
	since := value[string](s, "select registered_at::text from posthorn.nodes")
	s.turnClock(time.Minute)
	s.exec(`select posthorn.register_node('default', 'api-1', metadata => '{"v": 2}')`)
	equal(t, "nodes", column[string](s, columns, since), []string{`api-1 default {"v": 2} t t`})
}

// seed 000.10: invalid characters in an id become _.
func TestNodeIDIsSanitized(t *testing.T) {
	t.Parallel()
	s := database(t)
	for given, want := range map[string]string{
		"host-7.local:8080_a": "host-7.local:8080_a",
		"a b/c\nd":            "a_b_c_d",
		"größe":               "gr__e",
		"'; drop table":       "___drop_table",
	} {
		equal(t, given, value[string](s, "select posthorn.register_node('default', $1)", given), want)
	}
	for _, sql := range []string{
		"select posthorn.register_node('default', '')",
		"select posthorn.register_node('default', null)",
		"select posthorn.register_node('default', repeat('a', 256))",
		"select posthorn.register_node('default', 'a', metadata => '[]')",
	} {
		s.refused("PH004", sql)
	}
	s.refused("PH001", "select posthorn.register_node('nowhere', 'a')")
}

// seed 000.9: a node id is never moved to another namespace.
func TestNodeOfAnotherNamespaceIsRefused(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.exec("select posthorn.define_namespace('other')")
	s.register("api-1")
	s.setHandlers("api-1", `[{"name": "h", "patterns": ["a"]}]`)

	s.refused("PH002", "select posthorn.register_node('other', 'api-1', 'thief')")
	equal(t, "nodes", column[string](s, "select namespace || coalesce(display_name, '') from posthorn.nodes"), []string{"default"})
	equal(t, "handlers", s.handlers(), []string{"api-1 h a"})

	s.exec("select posthorn.define_group('other', $1)", group)
	s.refused("PH001", `select posthorn.set_node_handlers('other', 'api-1', $1, '[]')`, group)
	equal(t, "released", value[int](s, "select posthorn.remove_node('other', 'api-1')"), 0)
	equal(t, "nodes", s.nodes(), []string{"api-1 alive"})
}

// seed 000.17: a node is alive while it sends heartbeats, silent once one is overdue, stale
// after it has missed three, and removed after ten minutes. Until it is stale, others leave
// events to its handlers.
//
// seed 000.69
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.register("quiet")
	s.register("steady")
	for _, node := range []string{"quiet", "steady"} {
		s.setHandlers(node, `[{"name": "h", "patterns": ["a"]}]`)
	}
	s.exec("select posthorn.publish('default', 'a')")
	s.exec("select posthorn.claim('default', $1, 'quiet', lease_for => '1 hour')", group)
	beat := func() bool { return value[bool](s, "select posthorn.touch_node_heartbeat('steady')") }

	s.turnClock(40 * time.Second)
	equal(t, "nodes", s.nodes(), []string{"quiet alive", "steady alive"})
	equal(t, "registered", beat(), true)
	s.turnClock(80 * time.Second)
	equal(t, "nodes", s.nodes(), []string{"quiet silent", "steady alive"})
	equal(t, "handlers", s.handlers(), []string{"quiet h a", "steady h a"})
	equal(t, "registered", beat(), true)
	s.turnClock(2 * time.Minute)
	equal(t, "nodes", s.nodes(), []string{"quiet stale", "steady alive"})
	equal(t, "handlers", s.handlers(), []string{"steady h a"})
	s.exec("select posthorn.tend()")
	equal(t, "nodes", s.nodes(), []string{"quiet stale", "steady alive"})

	s.turnClock(9 * time.Minute)
	beat()
	s.turnClock(11 * time.Minute)
	s.exec("select posthorn.tend()")
	equal(t, "nodes", s.nodes(), []string{"steady stale"})
	equal(t, "handlers left", value[int](s, "select count(*) from posthorn.node_handlers"), 1)
	equal(t, "registered", value[bool](s, "select posthorn.touch_node_heartbeat('quiet')"), false)
	equal(t, "leases of the swept node", value[int](s, "select count(*) from posthorn.leases where node = 'quiet'"), 1)
	equal(t, "registered", beat(), true)
	equal(t, "nodes", s.nodes(), []string{"steady alive"})
}

// A heartbeat updates one row and no index.
func TestHeartbeatStaysOnItsPage(t *testing.T) {
	t.Parallel()
	s := database(t)
	for _, node := range []string{"a", "b", "c"} {
		s.register(node)
	}
	s.exec("begin")
	s.exec("select posthorn.touch_node_heartbeat(n) from unnest(array['a', 'b', 'c']) n, generate_series(1, 5)")
	equal(t, "updates", value[int](s, "select pg_stat_get_xact_tuples_updated('posthorn.nodes'::regclass)"), 15)
	equal(t, "updates on the page", value[int](s, "select pg_stat_get_xact_tuples_hot_updated('posthorn.nodes'::regclass)"), 15)
	s.exec("commit")
}

// The leases of a node that stops are taken over at once, by any node.
func TestRemoveNode(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.exec("select posthorn.define_group('default', 'other')")
	s.register("worker")
	s.register("else")
	s.setHandlers("worker", `[{"name": "h", "patterns": ["a"]}]`)
	events := s.publishMany(2)
	first, failed := s.claim(1), s.claim(1)
	s.settle(failed, failure{Event: events[1], RetryIn: "0"})
	s.claim(1) // the retry
	s.exec("select posthorn.claim('default', 'other', 'else')")

	equal(t, "given back", value[int](s, "select posthorn.remove_node('default', 'worker')"), 2)
	equal(t, "nodes", s.nodes(), []string{"else alive"})
	equal(t, "handlers", s.handlers(), []string{})
	s.lookAgain()
	deliveries := map[int64]int{}
	for l := s.claim(10); l.ID != 0; l = s.claim(10) {
		for i, e := range l.Events {
			deliveries[e] = l.Deliveries[i]
		}
		s.settle(l)
		s.lookAgain()
	}
	equal(t, "deliveries", deliveries, map[int64]int{events[0]: 1, events[1]: 2})
	s.refused("PH003", "select posthorn.settle($1, $2)", first.ID, first.Attempt)
	equal(t, "leases of the other node", value[int](s, "select leases from posthorn.node_status"), 1)
	equal(t, "given back again", value[int](s, "select posthorn.remove_node('default', 'worker')"), 0)
}

// A lease that is settled or taken over meanwhile is not released.
func TestRemoveNodeBesideSettle(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.register("worker")
	s.publish()
	l := s.claim(1)
	other := s.another()
	s.exec("begin")
	s.settle(l)
	outcome := other.background("select posthorn.remove_node('default', 'worker')")
	s.awaitBlocked(other)
	s.exec("commit")
	if err := outcome(); err != nil {
		t.Error(err)
	}
	equal(t, "nodes", s.nodes(), []string{})
}

// seed 000.33–36: the handlers of a node are replaced as a whole, and removed when it
// registers again.
func TestSetNodeHandlers(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.exec("select posthorn.define_group('default', 'other')")
	s.register("a")
	s.register("b")
	s.setHandlers("a", `[{"name": "charge", "patterns": ["order.*", "refund"]}, {"name": "mail", "patterns": [">"]}]`)
	s.setHandlers("b", `[{"name": "charge", "patterns": ["order.placed"]}]`)
	s.exec(`select posthorn.set_node_handlers('default', 'a', 'other', '[{"name": "h", "patterns": ["x"]}]')`)
	equal(t, "handlers", s.handlers(), []string{"a charge order.* refund", "a mail >", "b charge order.placed"})

	s.setHandlers("a", `[{"name": "mail", "patterns": ["y"]}]`)
	equal(t, "handlers", s.handlers(), []string{"a mail y", "b charge order.placed"})
	equal(t, "of both groups", value[string](s, "select handlers::text from posthorn.node_status where node_id = 'a'"),
		`[{"name": "mail", "group": "billing", "patterns": ["y"]}, {"name": "h", "group": "other", "patterns": ["x"]}]`)

	s.setHandlers("b", "[]")
	s.register("a")
	equal(t, "handlers", s.handlers(), []string{})
	equal(t, "of both groups", value[int](s, "select count(*) from posthorn.node_handlers"), 0)

	s.setHandlers("a", `[{"name": "mail", "patterns": ["y"]}]`)
	s.exec("select posthorn.delete_group('default', $1)", group)
	equal(t, "of a deleted group", value[int](s, "select count(*) from posthorn.node_handlers"), 0)
}

// seed 002.28–29: names are unique, and handlers that could never work are refused at
// once.
func TestBadHandlersAreRefused(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.register("a")
	const set = "select posthorn.set_node_handlers('default', 'a', $1, $2)"
	for _, handlers := range []string{
		"null", "{}", `["charge"]`, `[{}]`, `[{"name": "h"}]`, `[{"name": "", "patterns": ["a"]}]`, `[{"name": 7, "patterns": ["a"]}]`,
		`[{"name": "h", "patterns": "a"}]`, `[{"name": "h", "patterns": ["a..b"]}]`,
		`[{"name": "h", "patterns": [null]}]`, `[{"name": "h", "patterns": ["a"], "order": 1}]`,
	} {
		s.refused("PH004", set, group, handlers)
	}
	err := s.refused("PH002", set, group, `[{"name": "x", "patterns": ["a"]}, {"name": "x", "patterns": ["b"]}]`)
	equal(t, "error", err.Message, `handler with id "x" is already registered`)
	s.refused("PH001", set, "nobody", "[]")
	s.refused("PH001", "select posthorn.set_node_handlers('default', 'nobody', $1, '[]')", group)
	s.refused("PH001", "select posthorn.group_handlers('default', 'nobody')")
}

// Each role can do its work: a publisher sends heartbeats, a consumer registers
// handlers, and both read the tables that they may read.
func TestRolesOfNodes(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.exec("set role posthorn_publisher")
	s.register("p")
	s.exec("select posthorn.touch_node_heartbeat('p'), posthorn.append_event_log('default', 'e', '{}', 'p')")
	s.refused("42501", "select posthorn.remove_node('default', 'p')")
	s.exec("reset role; set role posthorn_consumer")
	s.register("c")
	s.setHandlers("c", `[{"name": "h", "patterns": ["e"]}]`)
	equal(t, "nodes", s.nodes(), []string{"c alive", "p alive"})
	equal(t, "handlers", s.handlers(), []string{"c h e"})
	equal(t, "log", column[string](s, "select producer_node_id from posthorn.event_log where scheduled_task_id is null"), []string{"p"})
	equal(t, "matches", value[bool](s, "select posthorn.matches('a.*.c', 'a.b.c')"), true)
	s.wantOutcome(1, outcomePending)
	s.exec("select posthorn.remove_node('default', 'c')")
	s.exec("reset role; set role posthorn_admin")
	s.exec("select posthorn.dead_letter_envelopes('default')")
	s.wantOutcome(1, outcomePending)
}
