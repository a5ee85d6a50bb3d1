// Package worker owns work in hand. [Run] takes work in lanes, limits how much of
// it runs at once, and drains on shutdown. A [Hold] is one thing in hand, such as
// a lease or a job; a [Heartbeat] extends holds, and extending and finishing of one
// hold exclude each other. [Retry] repeats what the database refuses for a moment,
// and [Trouble] reports an error once, and once that it is over.
//
// What is taken, and what its end means, belongs to the kinds of work: each
// implements [Kind]. This package knows no statement of SQL.
package worker
