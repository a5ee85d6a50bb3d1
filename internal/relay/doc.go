// Package relay reads a group of the log at full speed and writes its events to a
// broker. One process leads at a time; the others stand by. Whoever leads reads
// windows, one ahead of the one that is being written, and settles them in their
// order; no event is written after its lead may have ended.
//
// A stream that the broker does not take does not stop the others: its events are
// set aside, in their order, and tried again beside the windows. While any are, so
// are those of the stream that come after them.
//
// What a broker is, is up to who writes. What a lead and a lease are, and that
// whoever has lost them changes nothing, is up to the functions of the schema.
package relay
