package scenarios

import (
	"time"

	"github.com/posthorn/posthorn/internal/schedule"
	"github.com/posthorn/posthorn/internal/schedule/promise"
)

func await(worker string) step { return awaitKey(worker, "7") }

func awaitKey(worker, key string) step {
	return step{Op: promise.Await{Type: "pay", Key: key}, SQL: "select waits_until, event_id, timed_out from posthorn.await_event({job}, '" + worker + "', 'paid', 'pay', '" + key + "', '1 day', {attempt}, '{ns}')"}
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
	{
		// A wait begins beside a publisher: few steps, so that a search stops often between those of the wait.
		Name: "await-begin", Promises: []int{13}, Model: promise.New(promise.Rules{}),
		Setup: []step{enqueue("J", "")}, Drain: drainWaits, Finally: emptyQueue, Tidy: dropJobs,
		Sessions: []session{
			run("P", publish("pay", "7")),
			run("W", claimJobs("w", 1), await("w")),
		},
	},
	{
		// Two waits begin while transactions are open, the first one before a publisher commits, the other one behind it. The
		// drain publishes the event for which the other one waits.
		Name: "await-apart", Promises: []int{13}, Model: promise.New(promise.Rules{}),
		Setup:   []step{enqueue("J1", ""), enqueue("J2", ""), begin, publish("pay", "7"), prepareTx("{ns}p"), publish("other", "1")},
		Drain:   []step{publish("pay", "8"), claimJobs("drain", 1), complete("drain"), wake},
		Finally: emptyQueue, Tidy: dropJobs,
		Sessions: []session{
			run("P", commitPrepared("{ns}p")),
			run("W1", claimJobs("w1", 1), begin, awaitKey("w1", "7"), commit, complete("w1")),
			run("W2", claimJobs("w2", 1), awaitKey("w2", "8")),
			run("K", wake),
		},
	},
}
