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
// names of streams, ?replicas=1 is [Config.Replicas], ?timeout=10s is
// [Config.Timeout], and sentinel_username and sentinel_password are for sentinels
// that want them.
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
// connection. It is where the end is gone, because a failover lost it or the
// stream was emptied.
//
// Nothing acknowledged is lost, where a replica has it ([Config.Replicas]) or the
// server syncs to disk (appendonly yes, appendfsync always). With appendfsync
// everysec, the default of appendonly, a server that loses its power loses a
// second; one that is killed loses nothing.
//
// Redis 6.2 or newer, or Valkey.
package redis
