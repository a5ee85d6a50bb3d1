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
	{
		// The log comes from a cluster that has given out more transaction ids: those of this one begin below them.
		Name: "rebase-low", Promises: []int{2, 4}, Model: promise.New(promise.Rules{}), Fresh: true,
		Setup: group("{}", publish("e1", ""), claim("w0", 1), settle, publish("e2", ""), publish("e3", ""), claim("w0", 1),
			sql("set session_replication_role = replica"), // the log takes no updates
			sql("update posthorn.events set xid = "+later("xid::text")+"::text::xid8"),
			sql("update posthorn.cursors set base = "+laterSnapshot("base")+", target = "+laterSnapshot("target")),
			sql("update posthorn.leases set base = "+laterSnapshot("base")+", target = "+laterSnapshot("target")),
			sql("reset session_replication_role"), sql("update posthorn.cluster set system_identifier = 1, verified = '-infinity'"), publish("a0", "")),
		Drain: drainGroup, Finally: emptyGroup,
		Sessions: []session{
			run("C", step{Op: promise.GiveBack{}, SQL: "select posthorn.rebase()"}),
			run("A", begin, publish("a1", ""), commit, publish("a2", "")),
			run("W1", claim("w1", 1), settle, claim("w1", 10), settle),
			run("W0", settle, claim("w0", 10), settle),
		},
	},
}

// later is a transaction id of the other cluster, and laterSnapshot a snapshot in which none is under way.
func later(xid string) string { return "(" + xid + "::bigint + 1000000000)" }

func laterSnapshot(s string) string {
	return "(" + later("pg_snapshot_xmin("+s+")::text") + " || ':' || " + later("pg_snapshot_xmax("+s+")::text") + " || ':')::pg_snapshot"
}
