package scenarios

import (
	"github.com/posthorn/posthorn/internal/schedule"
	"github.com/posthorn/posthorn/internal/schedule/promise"
)

// A log that was restored into another cluster, in which workers and publishers go on.
var restore = []*schedule.Scenario{
	{
		Name: "rebase", Promises: []int{2, 4}, Model: promise.New(promise.Rules{}), Fresh: true,
		Setup: group("{}", publish("e1", ""), publish("e2", ""), claim("w0", 1)), Drain: drainGroup, Finally: emptyGroup,
		Sessions: []session{
			run("C", sql("update posthorn.cluster set system_identifier = 1"), step{Op: promise.GiveBack{}, SQL: "select posthorn.rebase()"}),
			run("A", begin, publish("a1", ""), commit, publish("a2", "")),
			run("W1", claim("w1", 1), settle, claim("w1", 10), settle),
			run("W0", settle, claim("w0", 10), settle),
		},
	},
}
