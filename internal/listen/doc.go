// Package listen lets any number of listeners of a process share one read of the
// log. It owns who gets which event: a [Hub] reads while there are listeners,
// finds by an index whose filter an event may pass, asks identical filters once,
// and puts it into the queues of theirs. It waits for no listener: whose queue is
// full is dropped, or misses events.
//
// A listener that starts in the past reads by itself until it has caught up, one
// of a few at a time. Then it joins: the hub lets it in between two looks at the
// log, and it reads what lies between where it stands and where the hub does.
//
// Nothing is written to the database. What a listener gets it gets once; that it
// is handled is not the concern of this package, see package consume.
package listen
