package scenarios

import (
	"time"

	"github.com/posthorn/posthorn/internal/schedule"
	"github.com/posthorn/posthorn/internal/schedule/promise"
)

// The log, and groups without an order: transactions that commit late, and leases that change
// hands.
var logs = []*schedule.Scenario{
	{
		Name: "late", Promises: []int{1, 2, 3}, Model: promise.New(promise.Rules{}),
		Setup: group("{}"), Drain: drainGroup, Finally: emptyGroup, Tidy: dropGroup,
		Sessions: []session{
			run("A", begin, publish("a1", ""), publish("a2", ""), commit),
			run("B", begin, publish("b1", ""), savepoint, publish("b2", ""), back, publish("b3", ""), commit),
			run("W1", claim("w1", 10), settle, claim("w1", 10), settle),
		},
	},
	{
		Name: "late-two-workers", Promises: []int{1, 2, 3}, Model: promise.New(promise.Rules{}),
		Setup: group("{}"), Drain: drainGroup, Finally: emptyGroup, Tidy: dropGroup,
		Sessions: []session{
			run("A", begin, publish("a1", ""), commit),
			run("B", begin, publish("b1", ""), rollback),
			run("C", publish("c1", ""), publish("c2", "")),
			run("W1", claim("w1", 1), settle),
			run("W2", claim("w2", 10), settle),
		},
	},
	{
		Name: "late-prepared", Promises: []int{1, 2}, Model: promise.New(promise.Rules{}),
		Setup: group("{}"), Drain: drainGroup, Finally: emptyGroup, Tidy: dropGroup,
		Sessions: []session{
			run("A", begin, publish("a1", ""), prepareTx("{ns}a"), commitPrepared("{ns}a")),
			run("B", begin, publish("b1", ""), prepareTx("{ns}b"), rollbackPrepared("{ns}b"), publish("b2", "")),
			run("W1", claim("w1", 10), settle, claim("w1", 10), settle),
		},
	},
	{
		Name: "long-publish", Promises: []int{1, 2, 3}, Model: promise.New(promise.Rules{}),
		Setup: group("{}", tagged("c0")), Drain: drainGroup, Finally: emptyGroup, Tidy: dropGroup,
		Sessions: []session{
			run("A", tagged("a1"), tagged("a2")),
			run("B", begin, tagged("b1"), commit),
			run("W", claim("w", 10), settle, claim("w", 10), settle),
		},
	},
	{
		Name: "dedup", Promises: []int{1, 2}, Model: promise.New(promise.Rules{}),
		Setup: group("{}"), Drain: drainGroup, Tidy: dropGroup,
		Finally: `select 'promise 1: a key was used twice' from posthorn.events e join posthorn.namespaces n on n.id = e.namespace_id
			where n.namespace = '{ns}' group by n.id having count(*) > 1`,
		Sessions: []session{
			run("A", begin, publishWith("a1", "", ", dedup_key => 'd'"), commit),
			run("B", begin, publishWith("b1", "", ", dedup_key => 'd'"), rollback),
			run("C", publishWith("c1", "", ", dedup_key => 'd'")),
			run("W", claim("w", 10), settle),
		},
	},
	{
		Name: "own-claim", Promises: []int{1, 2, 3}, Model: promise.New(promise.Rules{}),
		Setup: group("{}"), Drain: drainGroup, Finally: emptyGroup, Tidy: dropGroup,
		Sessions: []session{
			run("A", begin, publish("a1", ""), claim("a", 10), settle, publish("a2", ""), commit),
			run("B", begin, publish("b1", ""), commit),
			run("W", claim("w", 10), settle, claim("w", 10), settle),
		},
	},
	{
		Name: "expiry", Promises: []int{2, 4}, Model: promise.New(promise.Rules{}),
		Setup: group("{}", publish("e1", ""), publish("e2", "")), Drain: drainGroup, Finally: emptyGroup, Tidy: dropGroup,
		Sessions: []session{
			run("W1", claim("w1", 2), begin, settle, commit, claim("w1", 1), release),
			run("W2", claim("w2", 2), settle, begin, claim("w2", 2), settle, rollback),
			run("T", wait(31*time.Second), wait(31*time.Second)),
		},
	},
	{
		Name: "take", Promises: []int{2, 4}, Model: promise.New(promise.Rules{}),
		Setup: group("{}", publish("e1", ""), publish("e2", "")), Drain: drainGroup, Finally: emptyGroup, Tidy: dropGroup,
		Sessions: []session{
			run("W1", claim("w", 1), extend, settle), // one name: only the attempt tells them apart
			run("W2", claim("w", 1), settle, claim("w", 1), settle),
			run("T", wait(31*time.Second)),
		},
	},
	{
		Name: "settle-until", Promises: []int{2, 4}, Model: promise.New(promise.Rules{}),
		Setup: group("{}", publish("e1", ""), publish("e2", ""), publish("e3", "")), Drain: drainGroup, Finally: emptyGroup, Tidy: dropGroup,
		Sessions: []session{
			run("W1", claim("w", 3), until, begin, settle, commit),
			run("W2", claim("w", 3), begin, until, commit, settle),
			run("T", wait(31*time.Second)),
		},
	},
	{
		Name: "killed-worker", Promises: []int{1, 2, 4}, Model: promise.New(promise.Rules{}),
		Setup: group("{}", publish("e1", "")), Drain: drainGroup, Finally: emptyGroup, Tidy: dropGroup,
		Sessions: []session{
			run("W1", begin, claim("w1", 2), settle, commit, claim("w1", 2), settle),
			run("A", begin, publish("a1", ""), commit, publish("a2", "")),
			run("K", kill("W1"), kill("A")),
			run("W2", claim("w2", 2), settle),
		},
	},
	{
		Name: "crash", Promises: []int{1, 2, 4}, Model: promise.New(promise.Rules{}), Fresh: true,
		Setup: group("{}", publish("e1", "")), Drain: drainGroup, Finally: emptyGroup, Tidy: dropGroup,
		Sessions: []session{
			run("A", begin, publish("a1", ""), commit, publish("a2", "")),
			run("B", begin, publish("b1", ""), prepareTx("{ns}b"), commitPrepared("{ns}b")),
			run("W", claim("w", 2), settle, claim("w", 2), settle),
			run("K", crash),
		},
	},
	{
		Name: "seek-beginning", Promises: []int{2, 4}, Model: promise.New(promise.Rules{}),
		Setup: group(`{"start": "beginning"}`, publish("e1", "")), Drain: drainGroup, Finally: emptyGroup, Tidy: dropGroup,
		Sessions: []session{
			run("A", begin, publish("a1", ""), commit),
			run("S", begin, seek("-infinity"), commit),
			run("W1", claim("w1", 10), settle, claim("w1", 1), fail),
			run("W2", claim("w2", 1), settle),
		},
	},
	{
		Name: "seek-end", Promises: []int{2, 4}, Model: promise.New(promise.Rules{Lossy: true}),
		Setup: group(`{"start": "beginning"}`, publish("e1", "")), Drain: drainGroup, Finally: emptyGroup, Tidy: dropGroup,
		Sessions: []session{
			run("A", begin, publish("a1", ""), commit, publish("a2", "")),
			run("S", seek("infinity")),
			run("W1", claim("w1", 1), settle, claim("w1", 10), settle),
		},
	},
}
