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
}
