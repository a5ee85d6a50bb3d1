// Package redis writes events to Redis Streams for a relay, and reads them for an
// import.
//
// The key of a stream is the prefix, if any, followed by the name of the stream. The
// fields of an entry are the attributes of a CloudEvent: specversion, id, source,
// type, time, subject, datacontenttype, tags, metadata, data. Empty attributes are
// left out. The id is the id of the event in its log.
//
// # URLs
//
//	redis://user:password@host:6379/0                      a single server, with or without replicas
//	redis-sentinel://host1,host2:26380,host3/mymaster/0    the master that the sentinels name
//	redis-cluster://host1:7000,host2                       a Cluster; redis:// detects one, too
//
// The scheme rediss instead of redis connects by TLS. The parameters prefix,
// replicas, keep, keep_for and timeout set the fields of [Config], as in
// ?prefix=shop:&replicas=1&keep_for=72h. The parameters sentinel_username and
// sentinel_password are the credentials of the sentinels.
//
// # Guarantees
//
// Order: the entries of a stream are in the order of the log, if readers drop
// repeated ids. Each append names the id that must be last in the stream, and Redis
// refuses the append if another id is last. So a relay that has lost its lease cannot
// write old events between new ones.
//
// Few repeats: before it writes, a sink compares its events with the end of the
// stream. So an event is not appended again after an error, a crash or a lost
// connection. Repeats are possible in these cases only:
//
//   - A failover lost the end of the stream, or the stream was emptied.
//   - Trimming has removed events whose window the relay had not settled when it was
//     killed. So Keep should be more than two windows of the relay (RelayConfig.BatchSize).
//   - A relay took the lead again, and the stream has more than 2,000 later entries behind
//     an event that it had not settled.
//   - A relay was killed before it settled an event, and 64 or more events that were
//     committed late stand behind it.
//   - Other programs have appended more than ten entries.
//   - A server of Redis 7.0 was killed while it wrote its append-only file. At the
//     next start it discards the half-written append, and at the start after that it
//     executes that half. BGREWRITEAOF between the two starts prevents this.
//
// Durability: an acknowledged event is not lost if a replica has it, or if the server
// syncs each write to disk (appendonly yes, appendfsync always). With appendfsync
// everysec, a power failure loses one second; a killed process loses nothing.
//
// # Replicas
//
// If the server has replicas, an entry counts as written when one replica has it.
// So with a single replica for each master, a failover stops writing until the failed
// server is back. With two replicas, writing continues. With ?replicas=0 writing
// continues at once, and a failover loses the entries that were not replicated.
//
// # Reading
//
// [OpenSource] opens a source for an import. Sinks register the names of their streams
// in the set posthorn:streams, whose key has the prefix too. An import registers as a
// consumer group of each key, so that XINFO GROUPS shows its position, and trimming
// respects it. In a Cluster one command can read from one slot only. So a source
// blocks on a single stream, but polls several streams, up to ten times a second.
//
// The ids of entries come from the clock of the server. Keep the clocks of a master
// and its replicas in sync. If a replica takes over that lacks entries, and its clock
// is behind by more than the duration of the failover, its new entries get ids before
// those that readers have passed, and readers miss them.
//
// # Servers
//
// The server is Redis 6.2 or newer, or Valkey. The ACL of the user must allow evalsha,
// eval, script|load, xadd, xrange, xrevrange, xlen, xtrim, xread, xinfo, xgroup,
// xpending, sadd, sscan, exists, time, wait and info.
package redis
