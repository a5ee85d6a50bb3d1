package scenarios

import (
	"time"

	"github.com/posthorn/posthorn/internal/schedule"
	"github.com/posthorn/posthorn/internal/schedule/promise"
)

// dead is a group that has two dead letters.
var dead = group(`{"attempts": 1}`, publish("d1", ""), publish("d2", ""), claim("w0", 10), fail)

// Dead letters: redriven, discarded, recovered and purged at the same time.
var letters = []*schedule.Scenario{
	{
		Name: "redrive", Promises: []int{5}, Model: promise.New(promise.Rules{Redrives: true}),
		Setup: dead, Drain: []step{claim("drain", 100), settle, redrive}, Finally: emptyGroup, Tidy: dropGroup,
		Sessions: []session{
			run("R", redrive, sql("select posthorn.discard('{ns}', 'g')")),
			run("P", begin, redrive, commit),
			run("W1", claim("w1", 1), fail, claim("w1", 10), settle),
			run("W2", claim("w2", 10), settle),
		},
	},
	{
		// A late worker buries an event that is with another one: the event is dead and has a lease.
		Name: "redrive-late", Promises: []int{4, 5}, Model: promise.New(promise.Rules{Redrives: true}),
		Setup: dead, Drain: []step{claim("drain", 100), settle, redrive}, Finally: emptyGroup, Tidy: dropGroup,
		Sessions: []session{
			run("R", redrive, redrive, redrive),
			run("W1", claim("w1", 1), settle),
			run("W2", claim("w2", 1), fail, claim("w2", 1), settle),
			run("T", wait(31*time.Second)),
		},
	},
	{
		Name: "purge", Promises: []int{5}, Model: promise.New(promise.Rules{Redrives: true}),
		Setup: dead, Drain: drainGroup, Finally: emptyGroup, Tidy: dropGroup,
		Sessions: []session{
			run("R", begin, redrive, commit),
			run("P", begin, sql("select posthorn.purge('{ns}', 'g')"), rollback),
			run("D", sql("select posthorn.discard('{ns}', 'g')"), sql("select posthorn.recover('{ns}', 'g')"), redrive),
			run("W1", claim("w1", 1), fail),
		},
	},
	{
		Name: "delete-group", Promises: []int{2}, Model: promise.New(promise.Rules{Lossy: true, Ordered: true}),
		Setup: group(`{"order": "key"}`, publish("e1", "k")), Finally: orphans, Tidy: dropGroup,
		Sessions: []session{
			run("A", begin, publish("a1", "k"), commit),
			run("D", begin, step{Op: promise.GiveBack{}, SQL: "select posthorn.delete_group('{ns}', 'g')"}, commit, sql("select posthorn.define_group('{ns}', 'g')")),
			run("W1", claim("w1", 1), fail, claim("w1", 10), settle),
			run("W2", begin, claim("w2", 1), settle, commit),
		},
	},
}

// orphans are rows of groups that are gone.
const orphans = `
select 'a lease of no group' from posthorn.leases l where not exists (select from posthorn.groups g where g.id = l.group_id)
union all select 'a retry of no group' from posthorn.retries l where not exists (select from posthorn.groups g where g.id = l.group_id)
union all select 'a cursor of no group' from posthorn.cursors l where not exists (select from posthorn.groups g where g.id = l.group_id)
union all select 'a dead letter of no group' from posthorn.dead_letters l where not exists (select from posthorn.groups g where g.id = l.group_id)`
