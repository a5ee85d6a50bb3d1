// Package work works on jobs. It owns when a process looks for jobs, that it keeps the
// jobs that it has, and that their ends are recorded. The functions of the schema own
// which jobs are claimed, and what happens to a job that has failed.
//
// [Run] works on the jobs of some tags, as a kind of work of package worker. A worker
// takes several jobs at once if they are short, and runs them side by side. A handler of
// batches gets all jobs of a take in one call, and if that fails, each job alone. Jobs that
// have succeeded are completed by the next take, in the same round trip, or together after
// a moment, or in the transaction of their batch. Each report is fenced by the attempt. A
// heartbeat extends the leases, and twice a second the jobs in progress are compared with
// the database, so that the handler of a cancelled job ends.
//
// [Queues] let workers and requests wait for jobs. Package waitqueue owns whose turn it is
// to claim.
package work
