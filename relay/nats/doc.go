// Package nats writes streams to NATS JetStream, for a relay, and reads them there.
// [OpenSource] reads, for an import.
//
// A stream of Posthorn becomes one of JetStream, named prefix+namespace+stream,
// with subjects like prefix.namespace.stream.order.placed: the type of an event is
// the end of its subject, so that consumers filter by it. In names of streams and
// types, what NATS does not take is written as = and two hexadecimal digits. A
// message is a CloudEvent in binary mode, with the payload as its body; its
// Nats-Msg-Id is the event's id. A JetStream stream is of one log, which its
// description names; another log is refused, and can use a prefix of its own.
//
// The order of a stream holds whatever servers die, since each message says at
// which sequence it belongs. After a crash the sink looks at what is there and goes
// on behind it; what may come twice is what another relay had in flight more than
// two minutes before, JetStream's time for recognising ids. Let nothing else publish
// to the subjects: a stream where something has is refused until the message is
// removed, and one that is published at the very moment of a batch can make an event
// come behind those that follow it. None is lost.
//
// "Written" means that JetStream has acknowledged it: with replicas, that most of
// them have it. A single server answers before its disk does, unless its
// configuration has sync_interval: always.
//
// Streams grow until something is trimmed: set [Config].KeepFor or Keep, and the
// relay removes what is older, but nothing that the archive, an import of Posthorn's
// or a durable consumer of JetStream's still needs.
//
// Tested with nats-server 2.15. 2.9.10 lost track of replicated streams
// when nodes were killed.
package nats
