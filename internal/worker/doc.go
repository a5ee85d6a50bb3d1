// Package worker is the one loop for every kind of work. [Run] starts workers that
// take batches, limits the items that run at once, and drains on shutdown. A [Lead]
// is the right to work that one process has at a time. A [Hold] is one active lease,
// lead or job, and a [Heartbeat] extends holds; extending and finishing the same hold
// exclude each other. [Retry] repeats statements after temporary errors, and
// [Trouble] logs an error when it begins and when it is over.
//
// Each kind of work implements [Kind] or [Leadership], which take and record work.
// This package has no SQL.
package worker
