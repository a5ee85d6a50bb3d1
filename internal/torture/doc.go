// Package torture runs Posthorn under load while faults strike, and then checks
// every event and every job. There is nothing in it but tests.
//
// It has three parts: the log (publishers and groups), the jobs (over HTTP), and the
// pipeline (relays, brokers, their consumers, an archive). They share the run with
// its seed, the publisher of events, the faults, the processes that are killed, the
// waiting, the record and the report; a part has its servers, workers and checks.
// The clients record their actions and the answers; the checkers compare the record
// with the database and, in the pipeline, with every place that events reach:
//
//	lost          acknowledged, yet not in the log; or owed to a group or a place,
//	              and not there
//	invented      in the log, handed out or in a place, though never published
//	settled twice settled twice, settled by a worker that had lost its lease, or
//	              handed out again after it was settled; twice in an archive;
//	              two effects; a job that ended twice
//	out of order  before an event that it depends on
//	overlapping   two leases of one slot at once
//	attempts      delivered more often than the policy allows, or buried too early
//	not fenced    a job that another worker than its own has changed
//	stuck         a job that did not end
//
// A short run, as in go test, ends after ten faults; between two of them the
// publishers publish a fixed number of events, and the part has to do some work. A long
// run (-torture.for) lets a fault strike every few seconds (-torture.kill).
//
// The decisions of each client follow from the seed; how they interleave does not, so
// a seed makes a failure likely to come again, not certain.
//
// Guarantees that a test can provoke with two connections are in package
// guarantee.
package torture
