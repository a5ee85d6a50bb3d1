// Package torture runs Posthorn under load and faults, and then checks every event
// and every job. It consists of tests only.
//
// The tests have these parts: the log (publishers and groups), the jobs (over HTTP),
// the pipeline (relays, brokers, their consumers, an archive), the pipeline with Kafka, and the log on a primary
// with two standbys, which take over without and with a loss, after cancelled waits, or by Patroni. The run provides
// the seed, the publisher of events, the faults, the processes to kill, the waiting,
// the record and the report to all parts; each part has its servers, workers and
// checks. The clients record their actions and the answers. The checkers compare the
// record with the database and, in the pipeline, with every place that events reach:
//
//	lost          acknowledged but missing in the log, or missing in a group or
//	              place that must receive it
//	invented      in the log, handed out or in a place, but never published
//	settled twice settled twice, settled by a worker that had lost its lease, or
//	              handed out after it was settled; twice in an archive;
//	              two effects; a job that ended twice
//	out of order  before an event that it depends on
//	overlapping   two active leases of one slot
//	attempts      delivered more often than the policy allows, or buried too early
//	not fenced    a job that was changed by a worker that did not own it
//	stuck         a job that did not end
//	id of two events  an id that meant another event for somebody, before a failover
//	              that lost events
//	lost and not listed  in a broker or the archive, or handled by the import, lost by
//	              the log, and not in the list of lost events
//	listed and not lost  in that list for no reason
//
// A short run, as in go test, has ten faults. Between two faults the publishers
// publish a fixed number of events, and the part must complete some work. A long run
// (-torture.for) injects a fault every few seconds (-torture.kill).
//
// The seed determines the decisions of each client, but not how the clients
// interleave. So a failure is likely to be repeated with its seed, but not certain.
//
// Package guarantee tests the guarantees that a test with two connections can
// provoke.
package torture
