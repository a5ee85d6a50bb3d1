package guarantee

import (
	"testing"
)

// overtaken publishes first in an open transaction and second in a committed one, and
// makes the group read past both ids.
func overtaken(t *testing.T) (slow, s *session, first, second int64) {
	t.Helper()
	s = database(t)
	s.define("{}")
	slow = s.another()
	slow.exec("begin")
	first, second = slow.publish(), s.publish()
	wantEvents(t, s.drain(), second)
	return slow, s, first, second
}

func TestLateCommitIsDeliveredOnce(t *testing.T) {
	t.Parallel()
	slow, s, first, _ := overtaken(t)
	slow.exec("commit")
	wantEvents(t, s.drain(), first)
}

func TestLateRollbackIsNotDelivered(t *testing.T) {
	t.Parallel()
	slow, s, _, _ := overtaken(t)
	slow.exec("rollback")
	wantEvents(t, s.drain())
}

func TestLateCommitOfPreparedTransaction(t *testing.T) {
	t.Parallel()
	slow, s, first, _ := overtaken(t)
	gid := value[string](s, "select current_database()")
	slow.exec("prepare transaction '" + gid + "'")
	later := s.publish()
	wantEvents(t, s.drain(), later)

	s.exec("commit prepared '" + gid + "'")
	wantEvents(t, s.drain(), first)
}

func TestLateCommitWithSavepoints(t *testing.T) {
	t.Parallel()
	slow, s, first, _ := overtaken(t)
	slow.exec("savepoint kept")
	kept := slow.publish()
	slow.exec("savepoint undone")
	slow.publish()
	slow.exec("rollback to undone")
	last := slow.publish()
	later := s.publish()
	wantEvents(t, s.drain(), later)

	slow.exec("commit")
	wantEvents(t, s.drain(), first, kept, last)
}

// The transaction's first event is late, its last one fresh: they are still handed
// out in order.
func TestOneTransactionOnBothSidesOfThePosition(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define(`{"order": "total"}`)
	slow := s.another()
	slow.exec("begin")
	first, middle := slow.publish(), s.publish()
	wantEvents(t, s.drain(), middle)
	last := slow.publish()
	slow.exec("commit")
	behind := s.publish()

	wantEvents(t, s.drain(), first, last, behind)
}

// There are more late events than fit into one batch.
func TestManyLateEvents(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	slow := s.another()
	slow.exec("begin")
	late := slow.publishMany(25)
	fresh := s.publish()
	wantEvents(t, s.drain(), fresh)
	slow.exec("commit")
	behind := s.publish()

	var got []int64
	for l := s.claim(10); l.ID != 0; l = s.claim(10) {
		got = append(got, l.Events...)
		s.settle(l)
	}
	wantEvents(t, got, append(late, behind)...)
}

func TestLateCommitReachesReadersWithoutGroup(t *testing.T) {
	t.Parallel()
	s := database(t)
	slow := s.another()
	cursor := value[string](s, "select posthorn.cursor_at('infinity')")
	slow.exec("begin")
	first, second := slow.publish(), s.publish()
	got, cursor := s.read(cursor)
	wantEvents(t, got, second)

	slow.exec("commit")
	got, _ = s.read(cursor)
	wantEvents(t, got, first)
}

// read reads up to the end of the log, and returns the cursor after the last event.
func (s *session) read(cursor string) ([]int64, string) {
	s.t.Helper()
	var events []int64
	for {
		rows, _ := s.conn.Query(s.t.Context(), "select event_id, next_cursor from posthorn.read_events('default', $1)", cursor)
		n := len(events)
		for rows.Next() {
			var event *int64
			if err := rows.Scan(&event, &cursor); err != nil {
				s.t.Fatal(err)
			}
			if event != nil {
				events = append(events, *event)
			}
		}
		if err := rows.Err(); err != nil {
			s.t.Fatal(err)
		}
		if len(events) == n {
			return events, cursor
		}
	}
}
