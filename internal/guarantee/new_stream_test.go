package guarantee

import (
	"slices"
	"testing"
)

// Two transactions publish to the same new streams in different order, and neither
// waits for the other. With unique rows of streams the second publish would wait, and
// the third would deadlock.
func TestFirstPublishersOfAStreamDoNotWait(t *testing.T) {
	t.Parallel()
	for _, isolation := range []string{"read committed", "repeatable read"} {
		t.Run(isolation, func(t *testing.T) {
			t.Parallel()
			s := database(t)
			s.define("{}")
			one, two := s.another(), s.another()
			one.exec("begin isolation level " + isolation)
			two.exec("begin isolation level " + isolation)
			one.exec("select posthorn.publish('default', 'one', stream => 'a')")
			two.exec("select posthorn.publish('default', 'two', stream => 'b')")
			two.exec("select posthorn.publish('default', 'two', stream => 'a')")
			one.exec("select * from posthorn.publish_batch('default', array['one', 'one'], array['{}', '{}']::json[], array['b', 'a'])")
			two.exec(`select * from posthorn.publish_many('default', '[{"type": "two", "stream": "c"}, {"type": "two", "stream": "c"}]')`)
			one.exec("select posthorn.publish('default', 'one', stream => 'c', tags => '{x}')")
			two.exec("commit")
			one.exec("select posthorn.publish('default', 'one', stream => 'b')")
			one.exec("commit")

			want := []string{"one a", "one a", "one b", "one b", "one c", "two a", "two b", "two c", "two c"}
			look := func(when string) {
				t.Helper()
				for name, query := range map[string]string{
					"log":          "select e.type || ' ' || s.name from posthorn.events e join posthorn.streams s on s.id = e.stream_id",
					"read_log":     "select type || ' ' || stream from posthorn.read_log('default', posthorn.cursor_at('-infinity')) where event_id is not null",
					"outbox_event": "select event_type || ' ' || stream_name from posthorn.outbox_event",
					"find_event":   "select f.type || ' ' || f.stream from posthorn.events e, posthorn.find_event('default', e.id) f",
					"search":       `select type || ' ' || stream from posthorn.search_events('default', '{"stream": "*"}') where type is not null`,
				} {
					got := column[string](s, query)
					slices.Sort(got)
					equal(t, when+": "+name, got, want)
				}
				equal(t, when+": streams", column[string](s, "select name from posthorn.streams where namespace = 'default' order by name"), []string{"a", "b", "c", "default"})
				equal(t, when+": list_streams", column[string](s, "select stream_name from posthorn.list_streams('default', max_streams => 3)"), []string{"a", "b", "c"})
			}
			twins := func() int {
				return value[int](s, "select count(*) from posthorn.stream_names")
			}
			equal(t, "rows", twins(), 7)
			look("with twins")
			s.exec("select posthorn.tend()")
			equal(t, "rows after upkeep", twins(), 4)
			look("after upkeep")

			got := column[string](s, "select type || ' ' || stream from posthorn.claim('default', 'billing', 'w')")
			slices.Sort(got)
			equal(t, "claim", got, want)
		})
	}
}

// A group hands out each event once while streams have several rows.
func TestTwinsAreHandedOutOnce(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	s.exec("select posthorn.define_group('default', 'read')")
	s.exec("select posthorn.subscribe('default', 'filtered', 'all', '{}')")
	other := s.another()
	for i, publisher := range []*session{s, other} {
		publisher.exec("begin")
		publisher.exec("select posthorn.publish('default', $1, stream => 'new')", []string{"one", "two"}[i])
	}
	s.exec("commit")
	other.exec("commit")
	equal(t, "twins", value[int](s, "select count(*) from posthorn.stream_names where name = 'new'"), 2)
	for name, query := range map[string]string{
		"claim":            "select type || ' ' || stream from posthorn.claim('default', 'billing', 'w')",
		"claim filtered":   "select type || ' ' || stream from posthorn.claim('default', 'filtered', 'w')",
		"read_next_events": "select topic || ' ' || stream from posthorn.read_next_events('read')",
	} {
		got := column[string](s, query)
		slices.Sort(got)
		equal(t, name, got, []string{"one new", "two new"})
	}
	s.exec("select posthorn.settle(l.id, l.attempt, '[{\"event\": 1, \"permanent\": true}, {\"event\": 2, \"permanent\": true}]') from posthorn.leases l join posthorn.groups g on g.id = l.group_id where g.name = 'billing'")
	equal(t, "dead letters", column[string](s, "select type || ' ' || stream from posthorn.list_dead_letters('default') order by 1"), []string{"one new", "two new"})
}

// A transaction that relied only on its own row of the stream is complete when
// another one rolls back. A transaction that saw a committed row needs no own row.
func TestRollbackOfTheFirstPublisherTakesNoNameAway(t *testing.T) {
	t.Parallel()
	s := database(t)
	first, second := s.another(), s.another()
	first.exec("begin")
	first.exec("select posthorn.publish('default', 'first', stream => 'new')")
	second.exec("begin")
	second.exec("select posthorn.publish('default', 'second', stream => 'new')")
	first.exec("rollback")
	second.exec("savepoint a")
	second.exec("select posthorn.publish('default', 'second', stream => 'late')")
	second.exec("rollback to a")
	second.exec("select posthorn.publish('default', 'second', stream => 'late')")
	second.exec("commit")
	s.exec("select posthorn.tend()")
	equal(t, "events", column[string](s, "select stream || ' ' || type from posthorn.read_log('default', posthorn.cursor_at('-infinity'))"),
		[]string{"new second", "late second"})
}

// Upkeep keeps a row that every reader can see, including readers that began before
// it existed.
func TestUpkeepOfStreamsKeepsNames(t *testing.T) {
	t.Parallel()
	s := database(t)
	one, two, reader := s.another(), s.another(), s.another()
	one.exec("begin")
	two.exec("begin")
	one.exec("select posthorn.publish('default', 'one', stream => 'new')")
	two.exec("select posthorn.publish('default', 'two', stream => 'new')")
	two.exec("commit")
	names := "select string_agg(e.type || ' ' || coalesce((select x.name from posthorn.streams x where x.id = e.stream_id), '-'), ' ' order by e.id) from posthorn.events e"
	reader.exec("begin isolation level repeatable read")
	equal(t, "before", value[string](reader, names), "two new")
	s.exec("select posthorn.tend()")
	one.exec("commit")
	equal(t, "first made quick", value[int](s, "select count(*) from posthorn.stream_names where name = 'new' and plain"), 1)
	s.exec("begin isolation level repeatable read")
	s.exec("select posthorn.tend()") // does nothing: its snapshot may be older than another transaction's changes
	equal(t, "rows", value[int](s, "select count(*) from posthorn.stream_names where name = 'new'"), 2)
	s.exec("commit")
	s.exec("select posthorn.tend()")
	equal(t, "rows after upkeep", value[int](s, "select count(*) from posthorn.stream_names where name = 'new'"), 1)
	equal(t, "the old snapshot", value[string](reader, names), "two new")
	equal(t, "after", value[string](s, names), "one new two new")
}

// A publisher that sees no row of a stream may see one a moment later, when another
// transaction commits: that row is of the same stream, and not of another stream with
// the same id.
func TestStreamCommittedWhileItIsLookedUp(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec("alter function posthorn.stream_hash(text, text) rename to real_hash")
	s.exec(`create function posthorn.stream_hash(namespace text, stream text) returns bigint language plpgsql as $$
		begin
			perform pg_advisory_xact_lock_shared(1);
			return posthorn.real_hash(namespace, stream);
		end $$`)
	slow := s.another()
	s.exec("select pg_advisory_lock(1)")
	outcome := slow.background("select posthorn.publish('default', 'two', stream => 'a')")
	s.awaitBlocked(slow)
	s.exec("select posthorn.publish('default', 'one', stream => 'a')")
	s.exec("select pg_advisory_unlock(1)")
	if err := outcome(); err != nil {
		t.Fatal(err)
	}
	equal(t, "events", value[int](s, "select count(*) from posthorn.events e join posthorn.streams s on s.id = e.stream_id where s.name = 'a'"), 2)
}

// The id of a stream is a hash of its name. A second name with the same id is
// refused.
func TestStreamsWithOneIDAreRefused(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.exec(`insert into posthorn.stream_names (id, namespace_id, namespace, name)
		values (posthorn.stream_hash('default', 'mine'), 1, 'default', 'taken')`)
	for _, publish := range []string{
		"select posthorn.publish('default', 'e', stream => 'mine')",
		"select * from posthorn.publish_batch('default', array['e'], array['{}']::json[], array['mine'])",
	} {
		if err := s.refused("PH002", publish); err.Hint == "" {
			t.Errorf("%+v", err)
		}
	}
	s.exec("select posthorn.publish('default', 'e', stream => 'taken')")
	// The hash is the same in every installation.
	equal(t, "hash", value[int64](s, "select posthorn.stream_hash('default', 'orders')"), 1598716329132518873)
	equal(t, "hash", value[int64](s, "select posthorn.stream_hash('default', 'größer')"), 1557846816056644147)
}
