// Package inflow reads streams of a broker for a group, and hands their events
// to package consume as leases. It owns which process reads which stream, what
// was handled before, and in which order the events of a stream go out. How
// they are handled, settled and tried again is consume's; that a stream which
// went to another process cannot be settled is up to the functions of the schema.
//
// A process is a reader with a deadline, and holds streams under it. A stream
// has one lease out at a time, and is settled from its head on, so its position
// never passes an event that is not done. What was settled lately is known by
// its id, for brokers repeat themselves: a reader has those ids in memory and
// needs no look-up.
//
// Whenever it is not certain what became of a settlement, the stream is taken
// anew: the database knows.
package inflow
