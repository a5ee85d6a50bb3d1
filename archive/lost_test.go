package archive_test

import (
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
	w.Exec("select setval('posthorn.life_since', 1, false), posthorn.notice_restore()") // as a crash does, and the next session
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
