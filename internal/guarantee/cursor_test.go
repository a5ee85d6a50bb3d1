package guarantee

import (
	"encoding/base64"
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// seen is an event as a reader received it, with the cursor after it.
type seen struct {
	id     int64
	cursor string
}

// readLog reads one batch.
func (s *session) readLog(cursor string, max int) (batch []seen, next string, atEnd bool) {
	s.t.Helper()
	rows, _ := s.conn.Query(s.t.Context(),
		"select coalesce(event_id, 0), coalesce(event_cursor, ''), next_cursor, at_end from posthorn.read_log('default', $1, $2)", cursor, max)
	for rows.Next() {
		var e seen
		if err := rows.Scan(&e.id, &e.cursor, &next, &atEnd); err != nil {
			s.t.Fatal(err)
		}
		if e.id != 0 {
			batch = append(batch, e)
		}
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
	return batch, next, atEnd
}

// overlap publishes in transactions that overlap at random, and calls do between its
// steps.
func (s *session) overlap(chance *rand.Rand, steps int, do func(step int)) {
	s.t.Helper()
	var open, idle []*session
	for range 4 {
		idle = append(idle, s.another())
	}
	for step := range steps {
		switch n := chance.IntN(10); {
		case n < 3 && len(idle) > 0: // begin, often with an xid that is assigned long before the first id
			slow := idle[0]
			idle = idle[1:]
			slow.exec("begin")
			if chance.IntN(2) == 0 {
				slow.exec("select pg_current_xact_id()")
			}
			open = append(open, slow)
		case n < 6 && len(open) > 0:
			open[chance.IntN(len(open))].publish()
		case n < 8 && len(open) > 0: // end
			i := chance.IntN(len(open))
			open[i].publish()
			if chance.IntN(5) == 0 {
				open[i].exec("rollback")
			} else {
				open[i].exec("commit")
			}
			idle = append(idle, open[i])
			open = slices.Delete(open, i, i+1)
		default:
			s.publish()
		}
		do(step)
	}
	for _, slow := range open {
		slow.exec("commit")
	}
}

func eachSeed(t *testing.T, test func(t *testing.T, s *session, chance *rand.Rand)) {
	t.Parallel()
	for seed := range uint64(6) {
		t.Run("", func(t *testing.T) {
			t.Parallel()
			test(t, database(t), rand.New(rand.NewPCG(seed, 1)))
		})
	}
}

// The cursor of an event continues right after it: first with the events that its
// reader would have received next, then with all later events. None is missing or
// repeated, in any order of commits. seed 001.38-44
func TestCursorOfEachEvent(t *testing.T) {
	eachSeed(t, func(t *testing.T, s *session, chance *rand.Rand) {
		type reader struct {
			cursor string
			saw    []seen
			ways   []int // by event: the start of its pass over the log
			began  int
		}
		readers := make([]*reader, 3)
		start := value[string](s, "select posthorn.cursor_at('infinity')")
		for i := range readers {
			readers[i] = &reader{cursor: start}
		}
		look := func(r *reader, max int) bool {
			batch, next, atEnd := s.readLog(r.cursor, max)
			r.cursor = next
			for _, e := range batch {
				r.saw, r.ways = append(r.saw, e), append(r.ways, r.began)
			}
			if atEnd {
				r.began++
			}
			return len(batch) > 0 || !atEnd
		}
		s.overlap(chance, 120, func(int) {
			if r := readers[chance.IntN(len(readers))]; chance.IntN(3) == 0 {
				look(r, 1+chance.IntN(4))
			}
		})
		all := column[int64](s, "select id from posthorn.events order by id")
		for _, r := range readers {
			for quiet := 0; quiet < 2; { // once for the current pass
				if look(r, 7) {
					quiet = 0
				} else {
					quiet++
				}
			}
			equal(t, "events that a reader saw", slices.Sorted(ids(r.saw)), all)
			for i, e := range r.saw {
				got, _ := s.read(e.cursor)
				var way []int64
				for j := i + 1; j < len(r.saw) && r.ways[j] == r.ways[i]; j++ {
					way = append(way, r.saw[j].id)
				}
				if len(got) < len(way) || !slices.Equal(got[:len(way)], way) {
					t.Fatalf("after event %d came %v, want %v first", e.id, got, way)
				}
				equal(t, "events after a cursor", slices.Sorted(slices.Values(got)), slices.Sorted(ids(r.saw[i+1:])))
			}
		}
	})
}

func ids(events []seen) func(yield func(int64) bool) {
	return func(yield func(int64) bool) {
		for _, e := range events {
			if !yield(e.id) {
				return
			}
		}
	}
}

// From an event of which only the id is known, a reader receives every event that
// some reader may have received after it. seed 001.38-44
func TestCursorAfterAnEvent(t *testing.T) {
	eachSeed(t, func(t *testing.T, s *session, chance *rand.Rand) {
		start := value[string](s, "select posthorn.cursor_at('infinity')")
		cursors := []string{start, start, start}
		saw := make([][]int64, len(cursors))
		var clock time.Duration
		s.overlap(chance, 120, func(int) {
			switch i := chance.IntN(9); {
			case i < len(cursors):
				var batch []int64
				batch, cursors[i] = s.read(cursors[i])
				saw[i] = append(saw[i], batch...)
			case i == 8:
				clock += time.Minute
				s.turnClock(clock)
				s.exec("select posthorn.tick()")
			}
		})
		for i, cursor := range cursors {
			batch, _ := s.read(cursor)
			saw[i] = append(saw[i], batch...)
		}
		for _, e := range saw[0] {
			got, _ := s.read(value[string](s, "select posthorn.cursor_after('default', $1)", e))
			came := map[int64]int{}
			for _, id := range got {
				came[id]++
				if came[id] > 1 {
					t.Fatalf("after event %d, event %d came twice", e, id)
				}
			}
			if came[e] > 0 {
				t.Errorf("event %d came again", e)
			}
			for i := range saw {
				for _, later := range saw[i][slices.Index(saw[i], e)+1:] {
					if came[later] == 0 {
						t.Errorf("event %d was lost to a reader that had seen event %d", later, e)
					}
				}
			}
			// Events with lower ids, in a tick that did not see the event, precede it
			// for every reader.
			before := column[int64](s, `
				select f.id from posthorn.events e, posthorn.events f
				where e.id = $1 and f.id < e.id and (f.xid = e.xid or exists (
					select from posthorn.ticks t where pg_visible_in_snapshot(f.xid, t.snapshot) and not pg_visible_in_snapshot(e.xid, t.snapshot)))`, e)
			for _, id := range before {
				if came[id] > 0 {
					t.Errorf("after event %d came event %d, which is known to be before it", e, id)
				}
			}
		}
	})
}

// With upkeep, the events after an event that was published alone are exact.
func TestCursorAfterAnEventOfAQuietLog(t *testing.T) {
	t.Parallel()
	s := database(t)
	var events []int64
	for i := range 6 {
		s.turnClock(time.Duration(i) * time.Minute)
		events = append(events, s.publishMany(2)...)
		s.exec("select posthorn.tend()")
	}
	for i, e := range events {
		got, _ := s.read(value[string](s, "select posthorn.cursor_after('default', $1)", e))
		equal(t, "events", got, append([]int64(nil), events[i+1:]...))
	}
}

func TestCursorAfterMissingEvent(t *testing.T) {
	t.Parallel()
	s := database(t)
	slow := s.another()
	slow.exec("begin")
	open := slow.publish()
	s.exec("select posthorn.define_namespace('shop')")
	elsewhere := value[int64](s, "select posthorn.publish('shop', 'e')")
	for _, id := range []any{open, elsewhere, 4711, nil} {
		if err := s.refused("PH001", "select posthorn.cursor_after('default', $1)", id); err.Hint == "" {
			t.Error("no hint")
		}
	}
}

// The events between two cursors, and those after the later one, are together the
// events after the earlier one. seed 001.50-59
func TestCursorBetween(t *testing.T) {
	eachSeed(t, func(t *testing.T, s *session, chance *rand.Rand) {
		var looks []string
		s.overlap(chance, 60, func(int) {
			if chance.IntN(4) == 0 {
				looks = append(looks, value[string](s, "select posthorn.cursor_at('infinity')"))
			}
		})
		var after [][]int64 // by read: the events after it
		for _, cursor := range looks {
			rest, _ := s.read(cursor)
			after = append(after, rest)
		}
		for i := range looks {
			for j := i; j < len(looks); j++ {
				var between []int64
				cursor := value[string](s, "select posthorn.cursor_between($1, $2)", looks[i], looks[j])
				for atEnd := false; !atEnd; {
					var batch []seen
					batch, cursor, atEnd = s.readLog(cursor, 3)
					between = slices.AppendSeq(between, ids(batch))
				}
				equal(t, "events", slices.Sorted(slices.Values(append(between, after[j]...))), slices.Sorted(slices.Values(after[i])))
				if rest, _ := s.read(cursor); !slices.Equal(rest, after[j]) {
					t.Errorf("it stands at %v, want %v", rest, after[j])
				}
			}
		}
	})
}

func TestCursorBetweenRefuses(t *testing.T) {
	t.Parallel()
	s := database(t)
	first := value[string](s, "select posthorn.cursor_at('infinity')")
	s.publishMany(3)
	batch, middle, _ := s.readLog(first, 1)
	last := value[string](s, "select posthorn.cursor_at('infinity')")
	for _, pair := range [][2]string{{last, first}, {middle, last}, {first, middle}, {batch[0].cursor, last}, {"nonsense", last}} {
		if err := s.refused("PH004", "select posthorn.cursor_between($1, $2)", pair[0], pair[1]); err.Hint == "" {
			t.Error("no hint")
		}
	}
}

// A cursor fits into a header and a URL. An invalid one is refused with a clear
// error.
func TestCursorText(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.publishMany(20)
	batch, next, _ := s.readLog(value[string](s, "select posthorn.cursor_at('-infinity')"), 10)
	way := batch[0].cursor
	for _, cursor := range []string{way, next} {
		if value[bool](s, "select $1 !~ '^[A-Za-z0-9_.-]+$'", cursor) {
			t.Errorf("cursor %q", cursor)
		}
	}
	for _, cursor := range []any{
		nil, "", ".", "x", way + ".5", way + "x", next[1:], "e30", "e30.1",
		value[string](s, "select posthorn.cursor_at('infinity')") + ".7",
	} {
		s.refused("PH004", "select posthorn.read_log('default', $1)", cursor)
		s.refused("PH004", "select posthorn.read_events('default', $1)", cursor)
	}
}

// A cursor in the middle of an old target continues to the present end of the log: a
// reader must not take the end of that target for the end of the log.
func TestReadEventsGoesOnAfterAnOldLook(t *testing.T) {
	t.Parallel()
	s := database(t)
	first := s.publishMany(3)
	batch, _, _ := s.readLog(value[string](s, "select posthorn.cursor_at('-infinity')"), 10)
	later := s.publishMany(2)
	equal(t, "events read", slices.Collect(ids(batch)), first)
	equal(t, "events after the last", column[int64](s, "select event_id from posthorn.read_events('default', $1)", batch[2].cursor), later)
}

// A reader whose cursor is older than the dropped events gets an error.
func TestCursorOlderThanTheLog(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.keepADay()
	beginning := value[string](s, "select posthorn.cursor_at('-infinity')")
	s.publish()
	batch, seenAll, _ := s.readLog(beginning, 10)
	s.exec("select posthorn.tend()")
	dropped := s.publish()
	s.turnClock(time.Hour)
	s.exec("select posthorn.tend()")
	before, _ := s.read(seenAll)
	equal(t, "events before", before, []int64{dropped})
	s.turnClock(longAfter)
	s.maintain()
	if s.inLog(dropped) {
		t.Fatal("the event still exists")
	}
	kept := s.publish()
	for _, cursor := range []string{seenAll, batch[0].cursor} {
		if err := s.refused("PH001", "select posthorn.read_log('default', $1)", cursor); err.Hint == "" {
			t.Error("no hint")
		}
	}
	for _, from := range []string{"-infinity", "2020-01-01"} {
		got, _ := s.read(value[string](s, "select posthorn.cursor_at($1::text::timestamptz)", from))
		equal(t, "events from "+from, got, []int64{kept})
	}
	equal(t, "events from the end", len(column[*int64](s, "select event_id from posthorn.read_log('default', posthorn.cursor_at('infinity'))")), 1)
}

// After a crash, transaction ids that a cursor has seen are assigned again. Events
// published under them are read all the same, even if nothing is read before the next
// crash.
func cursorFromBeforeACrash(t *testing.T, own *ownDatabase) {
	s := own.session()
	s.publishMany(3)
	s.exec("select posthorn.tend()") // which writes the move of an earlier test's crash
	middle, _, _ := s.readLog(value[string](s, "select posthorn.cursor_at('-infinity')"), 10)
	var cursor string
	var before, events []int64
	again := false
	for range 20 { // on a busy machine the WAL may be written to disk in between
		before, events = append(before, events...), nil
		s.exec("checkpoint")
		for range 200 {
			s.exec("begin; select pg_current_xact_id(); rollback")
		}
		cursor = value[string](s, "select posthorn.cursor_at('infinity')")
		seen := value[string](s, "select pg_snapshot_xmax(pg_current_snapshot())::text")
		own.crash()

		s = own.session()
		for range 50 {
			events = append(events, s.publish())
		}
		again = value[bool](s, "select min(e.xid) < $1::text::xid8 from posthorn.events e where e.id >= $2", seen, events[0])
		if again {
			break
		}
	}
	if !again {
		t.Fatal("no transaction id was given out again")
	}
	own.crash() // before any read: nothing shows any more which ids were unused after the first crash
	s = own.session()
	got, next := s.read(cursor)
	equal(t, "events", got, events)
	got, _ = s.read(next)
	equal(t, "events later", got, nil)
	got, _ = s.read(middle[1].cursor)
	equal(t, "events after one of before", got, slices.Concat([]int64{middle[2].id}, before, events))
}

// Readers continue from cursors that the first version gave.
func TestCursorsOfTheFirstVersion(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("testdata/cursors.json")
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Cursors []struct {
			Stands, Content, Way string
			Then                 []int64
		}
	}
	if err := json.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	s := database(t)
	for xid := 100; xid < 103; xid++ { // which no cluster gives out any more
		s.exec("insert into posthorn.events (xid, namespace_id, stream_id, type, payload) values ($1::text::xid8, 1, posthorn.stream_id('default', 'default'), 'e', '1')", strconv.Itoa(xid))
	}
	cluster := value[string](s, "select system_identifier::text from posthorn.cluster")
	for _, c := range file.Cursors {
		cursor := base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(c.Content, "{cluster}", cluster, 1))) + c.Way
		equal(t, "events after "+c.Stands, column[int64](s, "select event_id from posthorn.read_events('default', $1) where event_id is not null", cursor), c.Then)
	}
}
