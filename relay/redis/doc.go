// Package redis writes events to Redis Streams, for a relay, and reads them there.
//
// The key of a stream is its name, after a prefix if there is one. An entry has the
// attributes of a CloudEvent as its fields: specversion, id, source, type, time,
// subject, datacontenttype, tags, metadata, data. Those that are empty are left out.
// The id is the event's in the log.
//
// # URLs
//
//	redis://user:password@host:6379/0                      one server, with its replicas if it has any
//	redis-sentinel://host1,host2:26380,host3/mymaster/0    the master that sentinels name
//	redis-cluster://host1:7000,host2                       Cluster; redis:// finds it out as well
//
// With rediss instead of redis, by TLS. Parameters: ?prefix=shop: stands before the
// names of streams; replicas, keep, keep_for and timeout are the fields of [Config],
// as in ?replicas=1&keep_for=72h; sentinel_username and sentinel_password are for
// sentinels that want them.
//
// # What is promised
//
// Order: entries of a stream are in the order of the log, once repeats are dropped
// by id. Each append names the event that must be last, and Redis refuses it where
// that is not so. What a late owner of a stream had still on its way is refused,
// not written in between.
//
// Few repeats: what is written again is compared with the end of the stream. So an
// event that Redis has is not appended once more after an error, a crash or a lost
// connection. It is where the end is gone, because a failover lost it or the stream
// was emptied, or where other programs added more than ten entries behind it; and
// where a server of Redis 7.0 was killed while it wrote its append-only file: it
// discards half an append when it starts, and carries that half out when it starts
// the next time. BGREWRITEAOF in between prevents it.
//
// Nothing acknowledged is lost, where a replica has it or the server syncs to disk
// (appendonly yes, appendfsync always). With appendfsync everysec a server that
// loses its power loses a second; one that is killed loses nothing.
//
// # Replicas
//
// By default an entry counts as written when one replica has it, where there are
// any. So with one replica for each master, nothing is written to a master's streams
// from a failover until the server that failed is back; with two it goes on. With
// ?replicas=0 it goes on at once, and a failover loses what was not replicated.
//
// # Reading
//
// [OpenSource] reads, for an import. Which streams there are is in the set
// posthorn:streams, after the prefix, which sinks keep. An import is a consumer group
// of the keys, so that XINFO GROUPS shows it and trimming knows it. In a Cluster one command reads one slot: several streams are looked at again
// up to ten times a second while nothing comes; a single one is waited for.
//
// Ids of entries come from the server's clock. Keep those of a master and its
// replicas together: if the one that takes over is behind by more than the failover
// took, and had not all entries, readers pass over what it writes until its clock is
// where the other's was.
//
// # Servers
//
// Redis 6.2 or newer, or Valkey. The user needs, by ACL: evalsha, eval, script|load,
// xadd, xrange, xrevrange, xlen, xtrim, xread, xinfo, xgroup, xpending, sadd, sscan,
// exists, time, wait and info.
package redis
