// Package consume is the kind of work that a group is: it runs the handlers of the
// events of leases. It owns which handlers an event is for, what a handler's answer
// means for the event, and when a lease is settled. Package worker takes leases,
// extends them and limits how much runs at once; what becomes of a failed event is
// up to the functions of the schema.
//
// Plain handlers run side by side within a lease. Handlers in transactions run
// one after another on their worker, and each event is acknowledged in the
// transaction of its effect: the head of the lease is settled there, in the round
// trip that commits it and begins the next. Ordered groups run the events of a
// lease one after another, and a failure ends it.
package consume
