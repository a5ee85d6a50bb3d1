// Package project is the kind of work that a projection is: a table that follows
// the log. Its group has a total order, and batches of its events are applied in
// transactions that also settle them, so that effect and position are one.
//
// A batch that cannot be applied is rolled back and tried in halves, until it is
// clear which event it is that fails. There the projection stands still, for all
// nodes, and tries again and again: it skips nothing.
package project
