// Package listen lets any number of listeners of a process share one read of the
// log. A [Hub] reads the log while there are listeners. An index finds the filters
// that an event may pass, identical filters are checked once, and the event is put
// into the queues of the listeners. The hub waits for no listener: a listener whose
// queue is full is dropped.
//
// A listener that starts in the past reads by itself until it has caught up; only a
// few listeners do so at the same time. Then it joins the shared read: the hub adds
// it between two scans of the log, and the listener reads the events between its
// own position and the hub's.
//
// Nothing is written to the database. Each event reaches a listener at most once.
// Package consume makes sure that events are handled; this package does not.
package listen
