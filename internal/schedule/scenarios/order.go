package scenarios

import (
	"time"

	"github.com/posthorn/posthorn/internal/schedule"
	"github.com/posthorn/posthorn/internal/schedule/promise"
)

// Groups in the order of keys.
var orders = []*schedule.Scenario{
	{
		Name: "order", Promises: []int{2, 3}, Model: promise.New(promise.Rules{Ordered: true}),
		Setup: group(`{"order": "key", "slots": 2}`, publish("k1", "k"), publish("k2", "k")),
		Drain: drainGroup, Finally: emptyGroup, Tidy: dropGroup,
		Sessions: []session{
			run("A", begin, publish("k3", "k"), publish("j1", "j"), commit, publish("k4", "k")),
			run("W1", claim("w1", 1), fail, claim("w1", 10), settle),
			run("W2", claim("w2", 10), settle, claim("w2", 1), settle),
		},
	},
	{
		Name: "order-late", Promises: []int{2, 3}, Model: promise.New(promise.Rules{Ordered: true}),
		Setup: group(`{"order": "key", "slots": 2}`), Drain: drainGroup, Finally: emptyGroup, Tidy: dropGroup,
		Sessions: []session{
			run("A", begin, publish("k1", "k"), commit, begin, publish("k2", "k"), commit),
			run("B", begin, publish("j1", "j"), publish("k3", "k"), commit),
			run("W1", claim("w1", 1), settle, claim("w1", 10), settle),
			run("W2", claim("w2", 10), settle),
		},
	},
	{
		Name: "order-expiry", Promises: []int{3, 4}, Model: promise.New(promise.Rules{Ordered: true}),
		Setup: group(`{"order": "key", "slots": 2}`, publish("k1", "k"), publish("k2", "k")),
		Drain: drainGroup, Finally: emptyGroup, Tidy: dropGroup,
		Sessions: []session{
			run("W1", claim("w1", 2), settle, claim("w1", 2)),
			run("W2", claim("w2", 1), settle, claim("w2", 2), settle),
			run("T", wait(31*time.Second), publish("k3", "k"), wait(31*time.Second)),
		},
	},
	{
		Name: "order-release", Promises: []int{3, 4}, Model: promise.New(promise.Rules{Ordered: true}),
		Setup: group(`{"order": "key", "slots": 2}`, publish("k1", "k"), publish("k2", "k"), publish("k3", "k")),
		Drain: drainGroup, Finally: emptyGroup, Tidy: dropGroup,
		Sessions: []session{
			run("W1", claim("w1", 2), release, claim("w1", 1), begin, settle, commit),
			run("W2", claim("w2", 1), fail, wait(2*time.Second), claim("w2", 2), settle),
		},
	},
	{
		// A part of a lease is settled, and its worker keeps the rest.
		Name: "order-until", Promises: []int{2, 3}, Model: promise.New(promise.Rules{Ordered: true}),
		Setup: group(`{"order": "key", "slots": 2}`, publish("k1", "k"), publish("k2", "k"), publish("k3", "k")),
		Drain: drainGroup, Finally: emptyGroup, Tidy: dropGroup,
		Sessions: []session{
			run("W1", claim("w", 3), until, settle),
			run("W2", claim("w", 3), begin, until, commit, settle),
			run("T", wait(31*time.Second)),
		},
	},
	{
		// A part of a lease has failed, and its worker goes on with the rest.
		Name: "order-hold", Promises: []int{2, 3}, Model: promise.New(promise.Rules{Ordered: true}),
		Setup: group(`{"order": "key", "slots": 2}`, publish("k1", "k"), publish("k2", "k"), publish("k3", "k")),
		Drain: drainGroup, Finally: emptyGroup, Tidy: dropGroup,
		Sessions: []session{
			run("W1", claim("w1", 3), failFirst, wait(2*time.Second), settle),
			run("W2", claim("w2", 3), settle),
		},
	},
	{
		// The worker that goes on behind a failed event dies, or gives the rest back.
		Name: "order-rest", Promises: []int{2, 3}, Model: promise.New(promise.Rules{Ordered: true}),
		Setup: group(`{"order": "key", "slots": 2}`, publish("k1", "k"), publish("k2", "k"), publish("k3", "k")),
		Drain: drainGroup, Finally: emptyGroup, Tidy: dropGroup,
		Sessions: []session{
			run("W1", claim("w1", 3), failFirst, release, claim("w1", 3), failFirst),
			run("W2", claim("w2", 1), fail, wait(2*time.Second), claim("w2", 3), settle),
			run("T", wait(31*time.Second)),
		},
	},
}
