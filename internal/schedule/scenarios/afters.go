package scenarios

import (
	"slices"
	"time"

	"github.com/posthorn/posthorn/internal/schedule"
	"github.com/posthorn/posthorn/internal/schedule/promise"
)

// settleEndings is the upkeep of jobs that wait for others.
var settleEndings = sql("select posthorn.settle_endings()")

var drainEndings = append(slices.Clip(drainJobs), settleEndings)

// cancelAll cancels a job and those after it.
func cancelAll(label, how string) step {
	return step{Op: promise.Change{Label: label, How: "cancel"}, SQL: "select posthorn.cancel_job({job_" + label + "}, jobs_after => '" + how + "')"}
}

// Jobs after others.
var afters = []*schedule.Scenario{
	{
		Name: "after", Promises: []int{9, 14}, Model: promise.New(promise.Rules{}),
		Setup: []step{enqueue("A", "")}, Drain: drainJobs, Finally: emptyQueue, Tidy: dropJobs,
		Sessions: []session{
			run("W1", begin, claimJobs("w1", 1), complete("w1"), commit),
			run("E", begin, enqueue("B", "", "A"), commit),
			run("W2", claimJobs("w2", 1), complete("w2"), claimJobs("w2", 1), complete("w2")),
		},
	},
	{
		Name: "after-two", Promises: []int{14}, Model: promise.New(promise.Rules{}),
		Setup: []step{enqueue("A", ", priority => 1"), enqueue("B", "")}, Drain: drainJobs, Finally: emptyQueue, Tidy: dropJobs,
		Sessions: []session{
			run("W1", claimJobs("w1", 1), begin, complete("w1"), commit),
			run("W2", claimJobs("w2", 1), begin, complete("w2"), commit),
			run("E", begin, enqueue("C", "", "A", "B"), commit),
			run("W3", claimJobs("w3", 1), complete("w3")),
		},
	},
	{
		Name: "after-batch", Promises: []int{14}, Model: promise.New(promise.Rules{}),
		Setup: []step{enqueue("A", ""), enqueue("B", ""), enqueue("C", "", "A", "B")}, Drain: drainJobs, Finally: emptyQueue, Tidy: dropJobs,
		Sessions: []session{
			run("W1", begin, claimJobs("w1", 1), completeAll("w1"), commit),
			run("W2", claimJobs("w2", 2), completeAll("w2")),
			run("E", begin, enqueue("D", "", "A", "C"), commit),
			run("T", wait(301*time.Second)),
		},
	},
	{
		Name: "after-isolation", Promises: []int{14}, Model: promise.New(promise.Rules{}),
		Setup: []step{enqueue("A", "")}, Drain: drainJobs, Finally: emptyQueue, Tidy: dropJobs,
		Sessions: []session{
			run("W1", claimJobs("w1", 1), repeat, sql("select 1"), complete("w1"), commit),
			run("E", enqueue("B", "", "A")),
			run("F", serial, enqueue("C", "", "A"), commit),
			run("W2", claimJobs("w2", 1), complete("w2")),
		},
	},
	{
		Name: "after-slow", Promises: []int{14}, Model: promise.New(promise.Rules{}), Slow: true,
		Setup: []step{enqueue("A", ""), enqueue("B", "")}, Drain: drainJobs, Finally: emptyQueue, Tidy: dropJobs,
		Sessions: []session{
			run("W1", begin, claimJobs("w1", 1), complete("w1"), commit, claimJobs("w1", 1), complete("w1")),
			run("E", begin, enqueue("C", "", "A"), commit, enqueue("D", "", "B")),
			run("W2", claimJobs("w2", 1), complete("w2")),
		},
	},
	{
		// With the first job of all: no job has ever waited for another.
		Name: "after-first", Promises: []int{14}, Model: promise.New(promise.Rules{}), Fresh: true,
		Setup: []step{enqueue("A", "")}, Drain: drainJobs, Finally: emptyQueue,
		Sessions: []session{
			run("W1", claimJobs("w1", 1), begin, complete("w1"), commit),
			run("E", begin, enqueue("B", "", "A"), commit),
			run("W2", claimJobs("w2", 1), complete("w2")),
		},
	},
	{
		Name: "after-cancel", Promises: []int{9, 14}, Model: promise.New(promise.Rules{Lossy: true}),
		Setup: []step{enqueue("A", "")}, Drain: drainEndings, Finally: emptyQueue, Tidy: dropJobs,
		Found: []string{"E X X E"},
		Sessions: []session{
			run("X", begin, cancelAll("A", "cancel"), commit),
			run("E", begin, enqueue("B", "", "A"), commit),
			run("W1", claimJobs("w1", 1), complete("w1")),
			run("D", begin, deleteJob("A"), rollback),
		},
	},
	{
		// Jobs that have failed with the one before them are retried, in any order. One that is
		// not retried keeps those after it waiting.
		Name: "after-retry", Promises: []int{14}, Model: promise.New(promise.Rules{Lossy: true}),
		Setup: []step{enqueue("A", ""), enqueue("B", "", "A"), enqueue("C", "", "B")}, Drain: drainEndings, Tidy: dropJobs,
		Found: []string{"X X R R W W"},
		Sessions: []session{
			run("X", begin, cancelAll("A", "fail"), commit),
			run("R", reset("C"), reset("B")),
			run("Q", begin, reset("C"), commit),
			run("W", claimJobs("w", 3), completeAll("w")),
		},
	},
	{
		// The first job has failed for good, and is being retried while another is enqueued behind it.
		Name: "after-reset", Promises: []int{14}, Model: promise.New(promise.Rules{}),
		Setup: []step{enqueue("A", ""), claimJobs("w", 1), giveUp("w")}, Drain: drainEndings, Finally: emptyQueue, Tidy: dropJobs,
		Sessions: []session{
			run("R", begin, reset("A"), claimJobs("w1", 1), complete("w1"), commit),
			run("E", begin, enqueue("B", "", "A"), commit),
			run("U", settleEndings, claimJobs("w2", 1), complete("w2")),
		},
	},
	{
		Name: "after-delete", Promises: []int{14}, Model: promise.New(promise.Rules{Lossy: true}),
		Setup: []step{enqueue("A", "")}, Drain: drainEndings, Finally: emptyQueue, Tidy: dropJobs,
		Sessions: []session{
			run("E", begin, enqueue("B", "", "A"), commit),
			run("W1", claimJobs("w1", 1), complete("w1")),
			run("D", begin, deleteJob("A"), commit),
		},
	},
}
