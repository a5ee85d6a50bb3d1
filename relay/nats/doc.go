// Package nats writes events to NATS JetStream for a relay ([Open]), and reads them
// for an import ([OpenSource]).
//
// # Streams and messages
//
// A stream of Posthorn becomes a JetStream stream with the name
// prefix+namespace+stream, and subjects like prefix.namespace.stream.order.placed.
// The subject ends with the type of the event, so that consumers can filter by type.
// Characters that NATS does not allow in names are written as = and two hexadecimal
// digits.
//
// A message is a CloudEvent in binary mode. Its body is the payload, and its
// Nats-Msg-Id is the id of the event. A JetStream stream belongs to one log, which its
// description names. The sink refuses to write the stream for another log; that log
// needs another prefix.
//
// # Guarantees
//
// Each message names the sequence that must be last in the stream. So the order of a
// stream holds, whichever servers fail. After a crash the sink compares its events
// with the end of the stream, and continues after the last one. An event can be stored
// twice only if it was sent more than two minutes before, since JetStream remembers ids for
// two minutes, and either another relay has sent it, or a crash came before the relay settled
// it, and 16 or more events that were committed late stand behind it.
//
// Other programs must not publish to the subjects. The sink refuses to write to a
// stream with a foreign message until that message is removed. A foreign message that
// is published during a batch can move an event behind later events, but loses none.
//
// An event counts as written when JetStream has acknowledged it: the majority of the
// replicas has it. A single server acknowledges before it syncs to disk, unless its
// configuration has sync_interval: always.
//
// # Trimming
//
// Streams grow until they are trimmed. With [Config].KeepFor or Keep, the relay removes
// older messages, unless the archive, an import or a durable consumer of JetStream
// still needs them.
//
// # Servers
//
// The package is tested with nats-server 2.15. Version 2.9.10 lost replicated streams
// when servers were killed.
package nats
