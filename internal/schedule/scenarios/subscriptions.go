package scenarios

import (
	"time"

	"github.com/posthorn/posthorn/internal/schedule"
	"github.com/posthorn/posthorn/internal/schedule/promise"
)

func publishTo(label string) step {
	return step{Op: promise.Publish{Label: label, Direct: true}, SQL: "select posthorn.publish_to('{ns}', 'g', 's1', '" + label + "')"}
}

func subscribeIf(condition string) step {
	return sql(`select posthorn.subscribe('{ns}', 'g', 's1', '{"conditions_sql": "` + condition + `"}')`)
}

// Groups with subscriptions that come, go and change their names.
var subscriptions = []*schedule.Scenario{
	{
		Name: "subscribe", Promises: []int{2, 3}, Model: promise.New(promise.Rules{}),
		Setup: group("{}", sql(`select posthorn.subscribe('{ns}', 'g', 's1', '{"type": ["a1", "b1", "b2"]}')`)),
		Drain: drainGroup, Finally: emptyGroup, Tidy: dropGroup,
		Sessions: []session{
			run("A", begin, publish("a1", ""), commit),
			run("B", publish("b1", ""), publish("b2", "")),
			run("U", begin, sql(`select posthorn.subscribe('{ns}', 'g', 's2', '{"type": ["a1", "c1"]}')`), commit, sql("select posthorn.unsubscribe('{ns}', 'g', 's2')")),
			run("W1", claim("w1", 10), settle, claim("w1", 10), settle),
		},
	},
	{
		Name: "publish-to", Promises: []int{1, 2}, Model: promise.New(promise.Rules{}),
		Setup: group("{}", sql(`select posthorn.subscribe('{ns}', 'g', 's1', '{"type": ["a1", "b1"]}')`)),
		Drain: drainGroup, Finally: emptyGroup, Tidy: dropGroup,
		Sessions: []session{
			run("A", begin, publishTo("a1"), commit),
			run("B", begin, publishTo("b1"), rollback, publish("b1", "")),
			run("W1", claim("w1", 10), settle),
			run("W2", claim("w2", 1), fail, wait(2*time.Second), claim("w2", 10), settle),
		},
	},
	{
		Name: "rename", Promises: []int{2}, Model: promise.New(promise.Rules{}),
		Setup: group("{}", sql(`select posthorn.subscribe('{ns}', 'g', 's1', '{"type": ["a1", "b1"]}')`), publish("b1", "")),
		Drain: drainGroup, Finally: emptyGroup, Tidy: dropGroup,
		Sessions: []session{
			run("A", begin, publish("a1", ""), commit),
			run("U", begin, sql(`select posthorn.subscribe('{ns}', 'g', 's2', '{"type": ["a1", "b1"]}', array['s1'])`), commit),
			run("W1", claim("w1", 10), fail, wait(2*time.Second), claim("w1", 10), settle),
			run("W2", claim("w2", 1), settle),
		},
	},
	{
		// A condition fails for an event, which becomes a dead letter, and is changed meanwhile. Keys tell the
		// events apart: a dead letter comes back behind later ones.
		Name: "condition", Promises: []int{2, 5}, Model: promise.New(promise.Rules{Ordered: true}),
		Setup: group("{}", subscribeIf("1 / (case when e.type = ''b1'' then 0 else 1 end) = 1")),
		Drain: append([]step{redrive}, drainGroup...), Finally: emptyGroup, Tidy: dropGroup,
		Sessions: []session{
			run("A", begin, publish("b1", "1"), commit),
			run("B", publish("c1", "2")),
			run("U", begin, subscribeIf("e.type <> ''d1''"), commit),
			run("W1", claim("w1", 10), settle, claim("w1", 10), settle),
			run("W2", claim("w2", 1), settle),
			run("R", redrive),
		},
	},
	{
		// A condition is stopped, as one that takes too long, and goes on: it gets what its group has read meanwhile. Keys
		// tell the events apart: those that it missed come behind later ones.
		Name: "condition-stopped", Promises: []int{2}, Model: promise.New(promise.Rules{Ordered: true}),
		Setup: group("{}", subscribeIf("e.type <> ''x''"), publish("e1", "1"), publish("e2", "2")),
		Drain: append([]step{sql("select posthorn.catch_up()")}, drainGroup...), Tidy: dropGroup,
		Finally: emptyGroup + `
			union all select 'a part of the log is left that a subscription has missed' from posthorn.stops x where x.group_no = {g}`,
		Sessions: []session{
			run("S", begin, stop, commit, begin, subscribeIf("e.type <> ''y''"), commit),
			run("A", begin, publish("a1", "3"), commit, publish("a2", "4")),
			run("W1", claim("w1", 1), release, claim("w1", 10), settle),
			run("W2", begin, claim("w2", 10), commit, fail),
		},
	},
}

// stop stops the subscriptions of the group, as a claim does with a condition that takes too long.
var stop = sql("select posthorn.stop_subscriptions({g}::int, array(select (s.id, 'slow')::posthorn.trouble from posthorn.subscriptions s where s.group_no = {g}))")
