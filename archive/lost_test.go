package archive_test

import (
	"path/filepath"
	"testing"

	"github.com/posthorn/posthorn/internal/test/testworld"
)

// A failover loses events that were archived, with all that the log knew of their segments. The
// archiver finds them, and no others, and they can be brought back.
func TestLostEventsAreFoundInAnArchive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("orders", 5)
	w.archive(quick)
	kept := testworld.Ask[int64](w.World, "select max(id) from posthorn.events")
	w.publish("orders", 3)
	w.publish("a b/c", 2)
	w.archive(quick)
	lost := testworld.Column[int64](w.World, "select id from posthorn.events where id > $1 order by id", kept)
	w.Exec("alter table posthorn.events disable trigger append_only")
	w.Exec("delete from posthorn.events where id > $1", kept)
	w.Exec("delete from posthorn.archive_segments where first_id > $1", kept)
	w.Exec("truncate posthorn.this_life; select posthorn.notice_restore()") // as a crash does, and the next session
	w.publish("orders", 1)
	w.Exec("select posthorn.define_namespace('operations')")
	w.Exec("update posthorn.config set value = 'operations' where key = 'failover_events'")
	w.run(quick)
	w.Await("select exists (select from posthorn.lost_looks)")
	testworld.Equal(t, "the event", testworld.Ask[string](w.World, `
		select concat_ws(' ', type, payload->>'archive', payload->>'relay', payload->'lost') from posthorn.events
		where namespace_id = posthorn.namespace_id('operations')`), "posthorn.failover.compared archive 5")
	testworld.Equal(t, "the lost events", testworld.Column[int64](w.World, "select id from posthorn.list_lost_events('default', 1)"), lost)
	testworld.Equal(t, "the last one", testworld.Ask[string](w.World, `
		select concat_ws(' ', stream, type, key, payload->'n', found_by) from posthorn.list_lost_events('default', 1) order by id desc limit 1`),
		"a b/c order.placed key 2 2 archive archive")
	testworld.Equal(t, "failovers", testworld.Column[string](w.World, "select concat_ws(' ', lost, looked, not_looked, errors) from posthorn.list_failovers('default')"),
		[]string{`5 {"archive archive"} {} {}`})
	testworld.Equal(t, "brought back", testworld.Ask[int](w.World, "select posthorn.bring_back('default', 1)"), 5)
}

// A segment that a failover has forgotten may have the ends of a later one, and other events between. The later one takes its
// place, once the lost events are listed. Without a failover, it is a conflict. After a further failover, the forgotten one is
// compared once more.
func TestSegmentReplacesAForgottenOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("orders", 3)
	w.archive(quick)
	w.Exec("alter table posthorn.events disable trigger append_only")
	lost := testworld.Ask[int64](w.World, "delete from posthorn.events where id = (select min(id) + 1 from posthorn.events) returning id")
	w.Exec("update posthorn.archive_segments set ids = array[first_id, last_id], events = 2, written_at = null")
	w.Exec("delete from posthorn.archive_days")
	w.Exec("update posthorn.archive_streams set unwritten = 1")
	stop := w.run(quick)
	w.Await("select exists (select from posthorn.archive_streams where error like '%exists and has other events%')")
	stop()
	w.Exec("update posthorn.archive_streams set lease_until = null")
	w.Exec("truncate posthorn.this_life; select posthorn.notice_restore()") // as a crash does, and the next session
	w.archive(quick)
	testworld.Equal(t, "the lost events", testworld.Column[int64](w.World, "select id from posthorn.list_lost_events('default', 1)"), []int64{lost})
	w.verified(2)
	kept, err := filepath.Glob(filepath.Join(w.dir, "default", "orders", "*", "*", "*", "*.forgotten-*"))
	if err != nil || len(kept) != 1 {
		t.Errorf("%q, %v: the forgotten segment is not kept", kept, err)
	}
	// Another failover loses the list, too.
	w.Exec("delete from posthorn.lost_events")
	w.Exec("delete from posthorn.lost_looks")
	w.Exec("truncate posthorn.this_life; select posthorn.notice_restore()")
	w.run(quick)
	w.Await("select exists (select from posthorn.lost_looks)")
	testworld.Equal(t, "the lost events after another failover", testworld.Column[int64](w.World, "select id from posthorn.list_lost_events('default', 1)"), []int64{lost})
}
