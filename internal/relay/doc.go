// Package relay reads a group of the log at full speed and writes its events to a
// broker. One process leads at a time; the others stand by ([worker.Lead]). The leader
// reads windows, one ahead of the one that is being written, and settles them in
// their order. Nothing is written once the lead may have ended.
//
// A stream that the broker refuses does not stop the others: its events are set
// aside, in their order, and retried beside the windows. While a stream has events
// set aside, its later events are set aside too.
//
// The broker is behind [Config].Write. The functions of the schema own leads and
// leases, and refuse a process that has lost them.
package relay
