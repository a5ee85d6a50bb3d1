// Package consume works through a group: it takes leases, runs the handlers of
// their events and settles. It owns who runs when, what a handler's answer means
// for an event, and that a lease stays alive while somebody works on it. What
// becomes of a failed event is up to the functions of the schema.
//
// A [Consumer] has lanes. Each takes a lease, works it off and settles it,
// mostly in the call that takes the next one. Only one lane at a time takes: the
// group lets in one anyhow, and so an idle consumer has one connection that
// looks for work, not ten.
//
// Plain handlers run side by side within a lease. Handlers in transactions run
// one after another in their lane, and each event is acknowledged in the
// transaction of its effect: the head of the lease is settled there, in the round
// trip that commits it and begins the next. Ordered groups run the events of a
// lease one after another, and a failure ends it.
package consume
