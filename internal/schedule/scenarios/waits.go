package scenarios

import (
	"time"

	"github.com/posthorn/posthorn/internal/schedule"
	"github.com/posthorn/posthorn/internal/schedule/promise"
)

func await(worker string) step {
	return step{Op: promise.Await{Type: "pay", Key: "7"}, SQL: "select waits_until, event_id, timed_out from posthorn.await_event({job}, '" + worker + "', 'paid', 'pay', '7', '1 day', {attempt}, '{ns}')"}
}

var drainWaits = []step{claimJobs("drain", 1), await("drain"), complete("drain"), wake}

// Jobs that wait for events.
var waits = []*schedule.Scenario{
	{
		Name: "await", Promises: []int{13}, Model: promise.New(promise.Rules{}),
		Setup: []step{enqueue("J", "")}, Drain: drainWaits, Finally: emptyQueue, Tidy: dropJobs,
		Sessions: []session{
			run("P", begin, publish("pay", "7"), commit),
			run("Q", begin, publish("other", "7"), commit),
			run("W1", claimJobs("w1", 1), await("w1"), wake, wait(2*time.Second), claimJobs("w1", 1), await("w1"), complete("w1")),
			run("K", wake),
		},
	},
	{
		// Two looks at once, of which the second finds the wait locked.
		Name: "await-two-looks", Promises: []int{13}, Model: promise.New(promise.Rules{}),
		Setup: []step{enqueue("J", ""), claimJobs("w", 1), await("w")}, Drain: drainWaits, Finally: emptyQueue, Tidy: dropJobs,
		Found: []string{"K1 P P K2 K1"},
		Sessions: []session{
			run("K1", begin, wake, commit),
			run("P", begin, publish("pay", "7"), commit),
			run("K2", wake),
		},
	},
	{
		Name: "await-tx", Promises: []int{13}, Model: promise.New(promise.Rules{}),
		Setup: []step{enqueue("J", "")}, Drain: drainWaits, Finally: emptyQueue, Tidy: dropJobs,
		Sessions: []session{
			run("P", begin, publish("pay", "7"), commit),
			run("W1", claimJobs("w1", 1), begin, await("w1"), commit),
			run("W2", begin, wake, commit, claimJobs("w2", 1), await("w2"), complete("w2")),
			run("T", wait(2*time.Second), wake),
		},
	},
	{
		// Of two events the job gets the one that was published first.
		Name: "await-first", Promises: []int{13}, Model: promise.New(promise.Rules{}),
		Setup: []step{enqueue("J", "")}, Drain: drainWaits, Finally: emptyQueue, Tidy: dropJobs,
		Sessions: []session{
			run("P", publish("pay", "7"), begin, publish("pay", "7"), publish("pay", "7"), commit),
			run("W1", claimJobs("w1", 1), await("w1"), wait(2*time.Second), wake, claimJobs("w1", 1), await("w1"), complete("w1")),
			run("U", begin, wake, commit, wake),
		},
	},
}
