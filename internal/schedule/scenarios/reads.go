package scenarios

import (
	"github.com/posthorn/posthorn/internal/schedule"
	"github.com/posthorn/posthorn/internal/schedule/promise"
)

var read = step{Op: promise.Read{}, SQL: "select event_id, next_cursor from posthorn.read_events('{ns}', '{cursor}', 2)"}

// Readers that keep a cursor of their own.
var reads = []*schedule.Scenario{
	{
		Name: "read", Promises: []int{1, 2, 3}, Model: promise.New(promise.Rules{}),
		Setup: []step{set("select posthorn.cursor_at('infinity') as cursor")},
		Drain: []step{read, read, read, read, read, read},
		Sessions: []session{
			run("A", begin, publish("a1", ""), publish("a2", ""), commit, publish("a3", "")),
			run("B", begin, publish("b1", ""), commit, begin, publish("b2", ""), rollback),
			run("R", read, read, read, read),
		},
	},
}
