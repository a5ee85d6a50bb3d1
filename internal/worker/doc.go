// Package worker is the one loop for every kind of work. [Run] has workers
// that take batches, limits how many items run at once, and drains on shutdown. A [Lead] is work that
// one process at a time does. A [Hold] is one active lease, lead or job, and a
// [Heartbeat] extends holds; extending and finishing one hold exclude each other.
// [Retry] repeats statements that the database refuses for a moment, and [Trouble]
// logs an error once, and once that it is over.
//
// It does not know how work is taken and recorded: each kind of work implements
// [Kind] or [Leadership]. This package has no SQL.
package worker
