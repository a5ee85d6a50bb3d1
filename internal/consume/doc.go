// Package consume runs the handlers of a group. It finds the handlers of an event,
// turns their errors into failures, and settles leases. Package worker takes leases,
// extends them and limits the handlers that run at once. The functions of the schema
// retry or bury failed events.
//
// Plain handlers run in parallel within a lease. Handlers in transactions run
// one after another on their worker, and each event is acknowledged in the
// transaction of its effect: the head of the lease is settled there, in the round
// trip that commits it and begins the next. Ordered groups run the events of a
// lease one after another, and a failure ends it.
package consume
