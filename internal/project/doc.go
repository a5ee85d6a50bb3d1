// Package project keeps projections: tables that follow the log. It takes
// leases of a projection's group, one at a time over all nodes, and applies their
// events in transactions that also settle them, so that effect and position are
// one.
//
// A batch that cannot be applied is rolled back and tried in halves, until it is
// clear which event it is that fails. There the projection stands still, for all
// nodes, and tries again and again: it skips nothing.
//
// What a lease is, and that one which was lost cannot be settled, is up to the
// functions of the schema.
package project
