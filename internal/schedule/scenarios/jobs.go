package scenarios

import (
	"time"

	"github.com/posthorn/posthorn/internal/schedule"
	"github.com/posthorn/posthorn/internal/schedule/promise"
)

// Jobs and their workers.
var jobs = []*schedule.Scenario{
	{
		Name: "claim-jobs", Promises: []int{9}, Model: promise.New(promise.Rules{}),
		Setup: []step{enqueue("J0", ""), enqueue("J1", ", priority => 2")}, Drain: drainJobs, Finally: emptyQueue, Tidy: dropJobs,
		Sessions: []session{
			run("W1", begin, claimJobs("w1", 1), commit, failJob("w1"), wait(2*time.Second), claimJobs("w1", 2), complete("w1")),
			run("W2", begin, claimJobs("w2", 1), rollback, claimJobs("w2", 1), complete("w2")),
			run("E", begin, enqueue("J2", ", run_at => posthorn.now() + interval '1 second'"), commit),
			run("X", cancel("J0"), deleteJob("J1")),
		},
	},
	{
		Name: "job-expiry", Promises: []int{9}, Model: promise.New(promise.Rules{}),
		Setup: []step{enqueue("J0", ""), enqueue("J1", "")}, Drain: drainJobs, Finally: emptyQueue, Tidy: dropJobs,
		Sessions: []session{
			run("W1", claimJobs("w", 1), complete("w")), // one name: only the attempt tells them apart
			run("W2", claimJobs("w", 2), begin, complete("w"), commit),
			run("T", wait(301*time.Second)),
			run("X", begin, cancel("J1"), rollback, reset("J0")),
		},
	},
	{
		Name: "job-late-failure", Promises: []int{9}, Model: promise.New(promise.Rules{}),
		Setup: []step{enqueue("J0", "")}, Drain: drainJobs, Finally: emptyQueue, Tidy: dropJobs,
		Sessions: []session{
			run("W1", claimJobs("w", 1), failJob("w")),
			run("W2", claimJobs("w", 1), failJob("w"), wait(2*time.Second), claimJobs("w", 1), complete("w")),
			run("T", wait(301*time.Second), wait(301*time.Second)),
		},
	},
	{
		Name: "job-heartbeat", Promises: []int{9}, Model: promise.New(promise.Rules{}),
		Setup: []step{enqueue("J0", "")}, Drain: drainJobs, Finally: emptyQueue, Tidy: dropJobs,
		Sessions: []session{
			run("W1", claimJobs("w", 1), heartbeat("w"), complete("w")),
			run("W2", claimJobs("w", 1), begin, heartbeat("w"), commit, completeAll("w")),
			run("T", wait(200*time.Second), wait(200*time.Second)),
		},
	},
	{
		// The last minute of a month: jobs of both months, and the table of the next one.
		Name: "job-month", Promises: []int{9, 14}, Model: promise.New(promise.Rules{}), Fresh: true,
		Setup: []step{wait(15*24*time.Hour + 11*time.Hour + 59*time.Minute + 55*time.Second), enqueue("A", "")}, Drain: drainJobs, Finally: emptyQueue,
		Sessions: []session{
			run("T", wait(10*time.Second), sql("select posthorn.maintain_job_tables()")),
			run("E", begin, enqueue("B", "", "A"), commit),
			run("W", claimJobs("w", 1), failJob("w"), wait(2*time.Second), claimJobs("w", 2), completeAll("w")),
		},
	},
	{
		Name: "job-killed", Promises: []int{9}, Model: promise.New(promise.Rules{}),
		Setup: []step{enqueue("J0", ""), enqueue("J1", "")}, Drain: drainJobs, Finally: emptyQueue, Tidy: dropJobs,
		Sessions: []session{
			run("W1", begin, claimJobs("w1", 1), complete("w1"), commit, claimJobs("w1", 1), complete("w1")),
			run("W2", claimJobs("w2", 1), complete("w2")),
			run("K", kill("W1"), kill("W1")),
		},
	},
}

// Unique keys.
var keys = []*schedule.Scenario{
	{
		Name: "keys", Promises: []int{9}, Model: promise.New(promise.Rules{}),
		Setup: []step{enqueue("J0", ", unique_key => 'k'")}, Drain: drainJobs, Finally: emptyQueue, Tidy: dropJobs,
		Sessions: []session{
			run("E1", begin, enqueue("J1", ", unique_key => 'k'"), commit),
			run("E2", begin, enqueue("J2", ", unique_key => 'k'"), rollback),
			run("W1", claimJobs("w1", 1), complete("w1")),
			run("W2", begin, claimJobs("w2", 1), complete("w2"), commit),
		},
	},
	{
		Name: "keys-changed", Promises: []int{9}, Model: promise.New(promise.Rules{}),
		Setup: []step{enqueue("J0", ", unique_key => 'k'")}, Drain: drainJobs, Finally: emptyQueue, Tidy: dropJobs,
		Sessions: []session{
			run("E1", begin, enqueue("J1", ", unique_key => 'k'"), commit),
			run("X", begin, cancel("J0"), commit),
			run("C", sql("select posthorn.change_job({job_J0}, priority => 3)")),
			run("W1", claimJobs("w1", 1), failJob("w1"), wait(2*time.Second), claimJobs("w1", 1), complete("w1")),
		},
	},
}
