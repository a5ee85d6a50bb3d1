package guarantee

import (
	"fmt"
	"testing"
	"time"
)

// More than 10,000 events are not counted exactly, but the reported bound is true.
func TestLagOfGroupsFarBehind(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"start": "beginning"}`)
	s.exec("select posthorn.define_namespace('other')")
	s.exec("select posthorn.publish_batch('other', array['a'], array['{}']::json[])")
	first := s.publish()
	s.exec("select posthorn.publish_batch('default', array_fill('a'::text, array[10000]), array_fill('{}'::json, array[10000]))")
	status := "select concat_ws(' ', lag_events, oldest_pending = (select created_at from posthorn.events where id = $2)) from posthorn.group_status where group_name = $1"
	equal(t, "far behind", value[string](s, status, group, first), "10002 t")
	s.settle(s.claim(2))
	equal(t, "nearer", value[string](s, status, group, first+2), "9999 t")
	s.exec("select posthorn.seek('default', $1, created_at) from posthorn.events where id = 5000", group)
	if lag := value[int](s, "select lag_events from posthorn.group_status where group_name = $1", group); lag >= 10_000 {
		t.Errorf("behind a time: %d events", lag)
	}
}

// Most of what a group is behind is counted once for all groups. The number of each is exact
// all the same, also where transactions that began earlier commit between the events of
// others.
func TestLagsOfManyGroupsAreExact(t *testing.T) {
	t.Parallel()
	const groups, each = 12, 60
	s := database(t)
	for i := range groups {
		s.exec(`select posthorn.define_group('default', $1, '{"start": "beginning"}')`, fmt.Sprint("g", i))
	}
	var open []*session
	published, read := 0, make([]int, groups)
	publish := func(s *session) {
		s.publishMany(each)
		published += each
	}
	for i := range groups {
		if i%3 == 0 {
			slow := s.another()
			slow.exec("begin")
			publish(slow)
			open = append(open, slow)
		}
		publish(s)
		for g := range groups { // some read all that is committed, some lag behind
			l := s.mustClaim(fmt.Sprint("g", g), each-4*g)
			s.settle(l)
			read[g] += len(l.Events)
		}
	}
	for _, slow := range open {
		slow.exec("commit")
	}
	publish(s)
	var want []int
	for g := range groups {
		want = append(want, published-read[g])
	}
	equal(t, "lags", column[int](s, "select lag_events from posthorn.group_status order by length(group_name), group_name"), want)
}

// Events may be published after a claim has read the sequence of ids, and before it sees the
// log. The group has read them although it has not passed their ids.
func TestLagWithoutEventsThatTheGroupHasSeen(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"start": "beginning"}`)
	s.publishMany(300)
	for l := s.claim(1000); l.ID != 0; l = s.claim(1000) {
		s.settle(l)
	}
	s.exec("update posthorn.cursors set base_seq = base_seq - 150, pos = base_seq - 150")
	s.publishMany(500)
	equal(t, "lag", value[int](s, "select lag_events from posthorn.group_status"), 500)
}

// One statement asks for groups of several namespaces. Each is told by the events of its own.
func TestLagBesideABusyNamespace(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.define_namespace('busy')")
	for _, namespace := range []string{"busy", "default"} {
		s.exec("select posthorn.define_group($1, 'g' || i, '{\"start\": \"beginning\"}') from generate_series(1, 2) i", namespace)
	}
	s.publishMany(3)
	s.exec("select posthorn.publish_batch('busy', array_fill('a'::text, array[10000]), array_fill('{}'::json, array[10000]))")
	s.exec("select posthorn.publish_batch('busy', array_fill('a'::text, array[10000]), array_fill('{}'::json, array[10000]))")
	s.publishMany(3)
	equal(t, "lags", column[string](s, "select namespace || ' ' || group_name || ' ' || case when lag_events >= 20000 then 'far' else lag_events::text end from posthorn.group_status order by group_name, namespace"),
		[]string{"busy g1 far", "default g1 6", "busy g2 far", "default g2 6"})
}

// Counting the lag of a group takes time: the status of relays counts only the lag of
// relays.
func TestStatusOfRelaysAsksForRelaysAlone(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("select posthorn.define_group('default', 'g' || i) from generate_series(1, 20) i")
	s.exec("select posthorn.define_relay('default', 'r')")
	s.exec("begin; set local track_functions = 'all'")
	equal(t, "relays", column[string](s, "select relay from posthorn.relay_status"), []string{"r"})
	equal(t, "groups looked at", value[int](s, "select calls from pg_stat_xact_user_functions where schemaname = 'posthorn' and funcname = 'pending'"), 1)
	s.exec("rollback")
}

// Events of an ordered group wait in leases that are cut late. Their age counts, not that of the leases.
func TestLagOfAnOrderedGroupIsTheAgeOfItsEvents(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"order": "total", "start": "beginning"}`)
	s.publish()
	s.publish()
	s.turnClock(10 * time.Minute)
	s.claim(1)
	equal(t, "events that wait, since 10 minutes", value[string](s, `select concat_ws(' ', lag_events, lag_seconds >= 600,
		oldest_pending = (select max(created_at) from posthorn.events)) from posthorn.group_status where group_name = $1`, group), "1 t t")
}

// The status of a group that is on its way through a long log, beyond which a transaction was open, does not read the
// log: it counts the last 10,000 events, and none of these are late.
func TestStatusOnTheWayReadsFewRows(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"start": "beginning"}`)
	s.publish()
	s.settle(s.claim(10))
	other := s.another()
	other.exec("begin")
	other.exec("select pg_current_xact_id()")
	s.exec(manyEvents("default"), 40_000)
	if l := s.claim(10); len(l.Events) != 10 {
		t.Fatalf("claimed %d events", len(l.Events))
	}
	const status = "select lag_events from posthorn.group_status where group_name = $1"
	if lag := value[int](s, status, group); lag < 39_000 {
		t.Errorf("%d events lag behind", lag)
	}
	s.exec("begin")
	before := value[int64](s, totalRead)
	value[int](s, status, group)
	if rows := value[int64](s, totalRead) - before; rows > 30_000 {
		t.Errorf("%d rows are read (%s)", rows, value[string](s, mostRead))
	}
}
