package scenarios

import (
	"slices"

	"github.com/posthorn/posthorn/internal/schedule"
	"github.com/posthorn/posthorn/internal/schedule/promise"
)

const oneRuns = `select 'promise 9: two jobs of a tag with limit 1 run'
where (select count(*) from posthorn.running_jobs r join posthorn.namespaces n on n.id = r.namespace_id where n.namespace = '{ns}') > 1`

// Limits of tags, and fair turns.
var limits = []*schedule.Scenario{
	{
		Name: "limits", Promises: []int{9}, Model: promise.New(promise.Rules{}), Always: oneRuns,
		Setup: []step{sql("select posthorn.set_job_limit('{ns}', 'x', 1)"), enqueue("A", ""), enqueue("B", ""), enqueue("C", "")},
		Drain: drainJobs, Finally: emptyQueue, Tidy: dropJobs,
		Sessions: []session{
			run("W1", begin, claimJobs("w1", 2), commit, complete("w1"), claimJobs("w1", 1), complete("w1")),
			run("W2", claimJobs("w2", 1), begin, complete("w2"), commit),
			run("W3", begin, claimJobs("w3", 1), rollback),
		},
	},
	{
		Name: "limit-set", Promises: []int{9}, Model: promise.New(promise.Rules{}),
		Setup: []step{enqueue("A", ""), enqueue("B", ""), enqueue("C", "")}, Drain: drainJobs, Finally: emptyQueue, Tidy: dropJobs,
		Sessions: []session{
			run("L", begin, sql("select posthorn.set_job_limit('{ns}', 'x', 1)"), commit, sql("select posthorn.set_job_limit('{ns}', 'x', 2)")),
			run("W1", begin, claimJobs("w1", 1), commit, complete("w1")),
			run("W2", claimJobs("w2", 1), complete("w2"), claimJobs("w2", 1), complete("w2")),
		},
	},
	{
		// A parked job is locked while a place gets free, and stays.
		Name: "limit-cancel", Promises: []int{9}, Model: promise.New(promise.Rules{}), Always: oneRuns,
		Setup: []step{sql("select posthorn.set_job_limit('{ns}', 'x', 1)"), enqueue("A", ""), enqueue("B", "")},
		Drain: drainJobs, Finally: emptyQueue, Tidy: dropJobs,
		Sessions: []session{
			run("W1", claimJobs("w1", 2), complete("w1")),
			run("X", begin, cancel("B"), rollback),
			run("W2", claimJobs("w2", 1), complete("w2")),
		},
	},
	{
		Name: "fair", Promises: []int{9}, Model: promise.New(promise.Rules{}),
		Setup: []step{enqueue("A", ", fair_key => 'a'"), enqueue("A2", ", fair_key => 'a'"), enqueue("B", ", fair_key => 'b'")},
		Drain: drainJobs, Finally: emptyQueue, Tidy: dropJobs,
		Sessions: []session{
			run("E", begin, enqueue("B2", ", fair_key => 'b', unique_key => 'u'"), commit),
			run("C", sql("select posthorn.change_job({job_A2}, priority => 1)"), cancel("B")),
			run("W1", claimJobs("w1", 1), failJob("w1")),
			run("W2", begin, claimJobs("w2", 2), complete("w2"), commit),
		},
	},
	{
		// Of three publishers of a key that did not see each other the first one commits while a claim gives turns to the
		// jobs of the others. The second worker has another tag, too: so it waits for no turn of workers.
		Name: "fair-crowd", Promises: []int{9}, Model: promise.New(promise.Rules{}),
		Always: `select 'promise 9: a turn was given twice' from posthorn.ready_jobs r join posthorn.namespaces n on n.id = r.namespace_id
			where n.namespace = '{ns}' and r.spread group by r.tag, r.rank, r.fair_key, r.attempt > 0, r.turn having count(*) > 1`,
		Setup: slices.Concat([]step{enqueue("B", ", fair_key => 'b'"), enqueue("C", ", fair_key => 'c'")},
			apart("A1"), apart("A2"), apart("A3"), []step{commitPrepared("{ns}A2"), commitPrepared("{ns}A3")}),
		Drain: drainJobs, Finally: emptyQueue, Tidy: dropJobs,
		Sessions: []session{
			run("E1", commitPrepared("{ns}A1"), begin, enqueue("A4", ", fair_key => 'a', unique_key => 'u'"), commit, cancel("A4")),
			run("W1", begin, claimJobs("w1", 1), commit, complete("w1"), claimJobs("w1", 2)),
			run("W2", begin, claimOf("w2", "'y', 'x'"), commit, complete("w2")),
		},
	},
}

// apart enqueues a job under fair key a in a transaction that is prepared, and that others do not see.
func apart(label string) []step {
	return []step{begin, enqueue(label, ", fair_key => 'a'"), prepareTx("{ns}" + label)}
}
