package guarantee

import "testing"

// A snapshot's xmax is the last completed xid + 1, not the next one to be assigned: a
// running transaction at or past xmax is not in its list of running ones.
func transactionPastXmax(t *testing.T, own *ownDatabase) { // other sessions would complete transactions meanwhile
	s := own.session()
	for _, test := range []struct{ name, before string }{
		{"known bound", "begin"},
		{"unknown bound", "begin; select pg_current_xact_id()"}, // base_next is null
	} {
		t.Run(test.name, func(t *testing.T) {
			s.exec("select posthorn.delete_group(n.namespace, g.name) from posthorn.groups g join posthorn.namespaces n on n.id = g.namespace_id")
			oldest, slow := s.another(), s.another()
			oldest.exec("begin; select pg_current_xact_id()") // so that the next snapshot's xmin stays below
			slow.exec("begin")
			late := slow.publish()
			s.exec(test.before)
			s.define("{}")
			s.exec("commit")
			if !value[bool](s, `select base_seq >= $1 and $2::text::xid8 >= pg_snapshot_xmax(base) from posthorn.cursors`,
				late, value[string](slow, "select pg_current_xact_id()::text")) {
				t.Fatal("the snapshot lists the transaction: this tests nothing")
			}

			slow.exec("commit")
			wantEvents(t, s.drain(), late)
			wantEvents(t, s.drain())
		})
	}
}

// A transaction takes its xid after the reader has read the sequence, and ends before
// the reader takes its snapshot.
func TestPublishedWhileTheReaderLooks(t *testing.T) {
	t.Parallel()
	s := database(t)
	s.define("{}")
	first := s.publish()
	reader := s.another()
	s.exec("select pg_advisory_lock(1886350440, g.id) from posthorn.groups g")
	claimed := make(chan lease)
	go func() {
		l, err := reader.tryClaim(group, 10)
		if err != nil {
			t.Error(err)
		}
		claimed <- l
	}()
	s.awaitBlocked(reader)
	second := s.publish()
	s.exec("select pg_advisory_unlock_all()")

	l := <-claimed
	s.settle(l)
	wantEvents(t, append(l.Events, s.drain()...), first, second)
}
