package guarantee

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/test/await"
)

// part is the result of one read of a group.
type part struct {
	ids  []int64
	next *string // the cursor after the events; nil if nothing was read
}

// readNext calls read_next_events with the arguments of seed 001.
func (s *session) readNext(cursor *string, size int, peek bool) part {
	s.t.Helper()
	var p part
	rows, _ := s.conn.Query(s.t.Context(),
		"select id, next_cursor from posthorn.read_next_events(gid := 'test', cursor := $1, chunk_size := $2, peek := $3)", cursor, size, peek)
	var id int64
	var next string
	_, err := pgx.ForEachRow(rows, []any{&id, &next}, func() error {
		p.ids = append(p.ids, id)
		p.next = &next
		return nil
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return p
}

const setCursor = "select posthorn.set_group_cursor(gid := 'test', cursor := $1, release_lock := $2)"

// readers makes a group that is read with a cursor.
func readers(t *testing.T) *session {
	s := database(t)
	s.exec("select posthorn.define_group('default', 'test')")
	return s
}

// seed 001.38: events have the cursor after them, and the group moves when a cursor
// is set.
func TestReadNextEvents(t *testing.T) {
	t.Parallel()
	s := readers(t)
	s.exec(`insert into posthorn.subscriptions (group_id, conditions_sql, params)
		values ('test', 's.params @> jsonb_build_object(''topic'', e.topic)', jsonb_build_object('topic', 'user.created'))`)
	first := value[int64](s, `select posthorn.publish('default', 'user.created', '{"n": 1}')`)
	s.exec(`select posthorn.publish('default', 'user.deleted', '{"n": 2}')`)

	var topic, payload string
	var ids []int64
	row := s.conn.QueryRow(t.Context(), "select topic, payload, subscription_ids from posthorn.read_next_events('test', null, 10)")
	if err := row.Scan(&topic, &payload, &ids); err != nil {
		t.Fatal(err)
	}
	equal(t, "topic", topic, "user.created")
	equal(t, "payload", payload, `{"n": 1}`)
	equal(t, "subscriptions", ids, column[int64](s, "select id from posthorn.subscriptions"))

	s.exec("select posthorn.set_group_cursor('test', null, true)")
	again := s.readNext(nil, 10, false)
	equal(t, "read again, since the group was not moved", again.ids, []int64{first})
	s.exec(setCursor, again.next, true)
	equal(t, "read after that", s.readNext(nil, 10, false).ids, nil)
}

// seed 001.39, 001.43: several readers of a group exclude one another, by a lease
// that expires by itself.
func TestReadersExcludeOneAnother(t *testing.T) {
	t.Parallel()
	s := readers(t)
	one, two := s.publish(), s.publish()
	other := s.another()

	mine := s.readNext(nil, 1, false)
	equal(t, "the first reader's", mine.ids, []int64{one})
	equal(t, "the second's", other.readNext(nil, 1, false).ids, nil)
	foreign := value[string](other, "select posthorn.cursor_at('-infinity')")
	equal(t, "the second's, with a cursor of its own", other.readNext(&foreign, 1, false).ids, nil)
	other.refused("PH003", setCursor, foreign, true)

	s.exec(setCursor, mine.next, true)
	theirs := other.readNext(nil, 1, false)
	equal(t, "the second's, after the first", theirs.ids, []int64{two})

	s.turnClock(time.Minute)
	equal(t, "the first's, since the second is silent", s.readNext(nil, 1, false).ids, []int64{two})
	if err := other.refused("PH003", setCursor, theirs.next, true); err.Hint == "" {
		t.Error("no hint names a remedy")
	}
}

// seed 001.40: a reader that is about to decide does not block others.
func TestAReaderDoesNotWaitForAnothersTransaction(t *testing.T) {
	t.Parallel()
	s := readers(t)
	id := s.publish()
	other := s.another()
	other.exec("begin")
	equal(t, "the first's", other.readNext(nil, 1, false).ids, []int64{id})
	equal(t, "the second's", s.readNext(nil, 1, false).ids, nil)
	other.exec("rollback")
	equal(t, "the second's, after that", s.readNext(nil, 1, false).ids, []int64{id})
}

// seed 001.41: the reader with the cursor may read ahead, on any connection.
func TestAReaderReadsAheadOnAnyConnection(t *testing.T) {
	t.Parallel()
	s := readers(t)
	var want, got []int64
	for range 10 {
		want = append(want, s.publish())
	}
	connections := []*session{s, s.another(), s.another()}
	var p part
	var second *string
	for i := range 4 {
		p = connections[i%3].readNext(p.next, 3, false)
		got = append(got, p.ids...)
		if i == 1 {
			second = p.next
		}
	}
	equal(t, "read", got, want)
	connections[1].exec(setCursor, second, false)
	equal(t, "a reader that comes meanwhile", s.another().readNext(nil, 10, false).ids, nil)
	s.exec("select posthorn.set_group_cursor('test', null, true)")
	equal(t, "the events that were not done", s.readNext(nil, 10, false).ids, want[6:])
}

// seed 001.42: reads skip nothing and repeat nothing, in any order of commits.
func TestReadsSkipNothing(t *testing.T) {
	t.Parallel()
	for seed := range uint64(4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(seed, 1))
			s := readers(t)
			publishers := []*session{s.another(), s.another(), s.another()}
			open := make([][]int64, len(publishers))
			var want, got []int64
			var p part
			finish := func(i int) {
				if random.IntN(4) == 0 {
					publishers[i].exec("rollback")
				} else {
					publishers[i].exec("commit")
					want = append(want, open[i]...)
				}
				open[i] = nil
			}
			for range 150 {
				i := random.IntN(len(publishers))
				switch n := random.IntN(10); {
				case n < 4:
					if open[i] == nil {
						publishers[i].exec("begin")
					}
					open[i] = append(open[i], publishers[i].publish())
				case n < 6 && open[i] != nil:
					finish(i)
				case n < 8:
					more := s.readNext(p.next, 1+random.IntN(3), false)
					got = append(got, more.ids...)
					if more.next != nil {
						p = more
					}
				case n < 9 && p.next != nil:
					s.exec(setCursor, p.next, random.IntN(2) == 0)
					p.next = nil
					s.exec("select posthorn.set_group_cursor('test', null, true)")
				}
			}
			for i := range publishers {
				if open[i] != nil {
					finish(i)
				}
			}
			for {
				more := s.readNext(p.next, 5, false)
				if more.next == nil {
					break
				}
				got, p = append(got, more.ids...), more
			}
			slices.Sort(want)
			slices.Sort(got)
			equal(t, "read", got, want)
		})
	}
}

// seed 001.44: peek takes nothing and writes nothing.
func TestPeekTakesNothing(t *testing.T) {
	t.Parallel()
	s := readers(t)
	s.exec(`select posthorn.subscribe('default', 'test', 'bad', '{"conditions_sql": "(e.payload->>''n'')::int > 0"}')`)
	s.exec(`select posthorn.subscribe('default', 'test', 'all')`)
	id := value[int64](s, `select posthorn.publish('default', 'thing', '{"n": "abc"}')`)
	s.exec("begin read only")
	equal(t, "seen", s.readNext(nil, 10, true).ids, []int64{id})
	equal(t, "seen again", s.readNext(nil, 10, true).ids, []int64{id})
	equal(t, "taken by another", s.another().readNext(nil, 10, false).ids, []int64{id})
	equal(t, "seen while another reads", s.readNext(nil, 10, true).ids, []int64{id})
	s.exec("commit")
}

// A group whose subscriptions want no event moves on, so that no event is searched
// twice.
func TestReaderSkipsUnwantedEvents(t *testing.T) {
	t.Parallel()
	s := readers(t)
	s.exec(`select posthorn.subscribe('default', 'test', 'rare', '{"type": "rare"}')`)
	s.exec("select posthorn.publish('default', 'common') from generate_series(1, 20000)")
	await.True(t, "the group is past them", func() bool { // a read ends after a second
		equal(t, "read", s.readNext(nil, 10, false).ids, nil)
		return value[int64](s, "select lag_events from posthorn.group_status where group_name = 'test'") == 0
	})
	rare := s.publishType("rare")
	p := s.readNext(nil, 10, false)
	equal(t, "read", p.ids, []int64{rare})
	s.exec("select posthorn.publish('default', 'common') from generate_series(1, 20000)")
	equal(t, "read on", s.readNext(p.next, 10, false).ids, nil)
	rare = s.publishType("rare")
	var next []int64
	await.True(t, "the reader is past them", func() bool {
		next = s.readNext(p.next, 10, false).ids
		return next != nil
	})
	equal(t, "read on", next, []int64{rare})
}

func (s *session) publishType(name string) int64 {
	s.t.Helper()
	return value[int64](s, "select posthorn.publish('default', $1)", name)
}

// Direct messages and retries are read too, and are done when the group moves past
// them.
func TestAReaderGetsDirectMessages(t *testing.T) {
	t.Parallel()
	s := readers(t)
	s.exec(`select posthorn.subscribe('default', 'test', 'mine', '{"type": "thing"}')`)
	s.exec(`select posthorn.subscribe('default', 'test', 'other', '{"type": "thing"}')`)
	event := s.publishType("thing")
	direct := value[int64](s, "select posthorn.publish_to('default', 'test', 'mine', 'hello')")

	p := s.readNext(nil, 10, false)
	equal(t, "read", p.ids, []int64{event, direct})
	equal(t, "read on", s.readNext(p.next, 10, false).ids, nil)
	s.turnClock(time.Minute)
	p = s.readNext(nil, 10, false)
	equal(t, "read again after the reader died", p.ids, []int64{event, direct})
	s.exec(setCursor, p.next, true)
	equal(t, "read after that", s.readNext(nil, 10, false).ids, nil)
	equal(t, "owed", value[int](s, "select count(*) from posthorn.retries"), 0)
}

// Retries fill a part of what was asked for, or all of it. The events behind them come with the next cursors.
func TestAReaderGetsRetriesInParts(t *testing.T) {
	t.Parallel()
	for _, retries := range []int{1, 4, 9} {
		t.Run(fmt.Sprint(retries), func(t *testing.T) {
			t.Parallel()
			s := readers(t)
			s.exec(`select posthorn.subscribe('default', 'test', 'mine', '{"type": "thing"}')`)
			want := column[int64](s, "select posthorn.publish('default', 'thing') from generate_series(1, 10)")
			want = append(want, column[int64](s, "select posthorn.publish_to('default', 'test', 'mine', 'hello') from generate_series(1, $1)", retries)...)
			var got []int64
			var last part
			for p := s.readNext(nil, 4, false); p.next != nil; p = s.readNext(p.next, 4, false) {
				if len(p.ids) > 4 {
					t.Errorf("%d events in a part of 4", len(p.ids))
				}
				got, last = append(got, p.ids...), p
			}
			slices.Sort(got)
			equal(t, "read", got, want)
			s.exec(setCursor, last.next, true)
			equal(t, "read after that", s.readNext(nil, 4, false).ids, nil)
		})
	}
}

// Events that a stopped subscription misses while a reader is ahead of its group are
// handed out when the subscription is changed.
func TestReaderGetsEventsMissedByStoppedSubscription(t *testing.T) {
	t.Parallel()
	s := readers(t)
	s.makeFussy()
	s.exec("select posthorn.subscribe('default', 'test', 'big', $1::text::jsonb)", conditionFilter(fussy, "{}"))
	s.exec(`select posthorn.publish('default', 'thing', '{"n": "abc"}')`)
	missed := value[int64](s, `select posthorn.publish('default', 'thing', '{"n": 7}')`)
	p := s.readNext(nil, 10, false)
	equal(t, "read while it is stopped", p.ids, nil)
	late := value[int64](s, `select posthorn.publish('default', 'thing', '{"n": 8}')`)
	equal(t, "read while it is stopped", s.readNext(nil, 10, false).ids, nil)
	s.exec(`select posthorn.subscribe('default', 'test', 'big', '{"conditions_sql": "e.payload->>''n'' in (''7'', ''8'')"}')`)
	equal(t, "read after that", s.readNext(nil, 10, false).ids, []int64{missed, late})
}

func TestCursorsOfOthersAreRefused(t *testing.T) {
	t.Parallel()
	s := readers(t)
	s.publish()
	p := s.readNext(nil, 1, false)
	for _, bad := range []string{"", "~", "abc", *p.next + "x", "~~1", *p.next + ",y"} {
		s.refused("PH004", setCursor, bad, false)
		s.refused("PH004", "select * from posthorn.read_next_events('test', $1)", bad)
	}
	s.refused("PH004", setCursor, nil, false)
	s.refused("PH001", "select * from posthorn.read_next_events('nobody')")
	s.refused("PH004", "select * from posthorn.read_next_events('test', null, 0)")
}

// A reader that lost the answer and sets its cursor again gets the same answer, if
// the group is at that position, and blocks no other reader. If the group is
// elsewhere, the error does not name other readers.
func TestACursorThatIsSetTwice(t *testing.T) {
	t.Parallel()
	s := readers(t)
	s.publish()
	two := s.publish()
	mine := s.readNext(nil, 1, false)
	s.exec(setCursor, mine.next, true)
	s.exec(setCursor, mine.next, true)
	other := s.another()
	theirs := other.readNext(nil, 1, false)
	equal(t, "events of the next reader", theirs.ids, []int64{two})
	s.exec(setCursor, mine.next, true)
	equal(t, "a third reader, as the second still reads", s.another().readNext(nil, 1, false).ids, nil)
	other.exec(setCursor, theirs.next, true)
	_, err := s.conn.Exec(t.Context(), setCursor, mine.next, true)
	if err == nil || !strings.Contains(err.Error(), "has ended (SQLSTATE PH003)") {
		t.Errorf("set again when the group stands elsewhere: %v", err)
	}
	equal(t, "remaining events", s.readNext(nil, 1, false).ids, nil)
}
