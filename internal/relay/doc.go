// Package relay reads a group of the log at full speed and writes its events to a
// broker. One process leads at a time; the others stand by ([worker.Lead]). The leader
// reads windows, one ahead of the one that is being written, and settles them in
// their order; no event is written after the lead may have ended.
//
// A stream that the broker does not take does not stop the others: its events are
// set aside, in their order, and tried again beside the windows. While any are, so
// are those of the stream that come after them.
//
// The broker is behind [Config].Write. The functions of the schema own leads and
// leases, and refuse a process that has lost them.
package relay
