// Package kafka writes events to Apache Kafka for a relay ([Open]), and reads them for an
// import ([OpenSource]).
//
// # Topics and records
//
// A stream of Posthorn becomes a topic with the name prefix.namespace.stream, like
// posthorn.default.orders. A byte that Kafka does not allow in names is written as _ and
// two hexadecimal digits; the end of a name that is too long is replaced by a hash.
//
// A record is a CloudEvent in binary mode, as the Kafka protocol binding of CloudEvents
// says: its value is the payload, its key is the key of the event, and its headers are
// ce_specversion, ce_id, ce_source, ce_type, ce_time, ce_subject, ce_tags, ce_metadata,
// ce_stream and content-type. Empty attributes are left out. Source and id together are
// the event; the id alone is not.
//
// The sink makes missing topics with one partition. A topic that exists may have more:
// then events with a key go to the partition that Kafka's own clients choose for it, and
// events without one to any partition.
//
// # URLs
//
//	kafka://host:9092,host2:9092
//	kafka+ssl://user:password@host:9093?sasl=scram-sha-256&ca=ca.pem
//
// [Config] documents the parameters. User and password may also stand in the environment
// variables POSTHORN_KAFKA_USER and POSTHORN_KAFKA_PASSWORD. The parameter sasl is plain,
// scram-sha-256, scram-sha-512 or oauthbearer; it defaults to plain for a user, and to
// oauthbearer for a token. PLAIN sends the password as it is, so use it with TLS only.
//
// # Guarantees
//
// Each call of [Sink.Write] is one transaction of Kafka, with acks=all. So consumers that
// read committed records only (isolation.level=read_committed) see an event either not at
// all or with all events of its batch, and they see events of aborted transactions never.
// Other consumers may see events of aborted transactions; these come again.
//
// Order: the records of a topic with one partition are in the order of the log. With more
// partitions, the events of each key are in the order of the log.
//
// One writer: a sink has a transactional id, which contains the id of the log, the
// namespace and [Config].Relay. When a relay takes the lead, Kafka gives its sink the next
// epoch of that id, aborts the transaction of the sink before it, and refuses each later
// record of that sink. So a relay that was suspended writes nothing when it continues.
//
// Few repeats: after it has got an epoch, a sink compares its events with the ends of the
// partitions, and leaves out those that are there. An event is written again in these
// cases only: Kafka has lost or removed it; it is behind more than 2,000 later events, or
// behind 16 or more that were committed late; relays with different names write the same
// stream.
//
// Visible: a write is acknowledged when consumers of committed records can read it. If the
// only replica of a partition crashes just after a commit, Kafka 4.4 may forget to mark
// the records there, and hides the records behind them. The sink ends such a transaction and writes
// its events again, if the user may Alter the cluster; otherwise the stream is stuck, and
// its error names the command for the operator.
//
// Durability: a record is acknowledged by all replicas that are in sync. With one replica,
// or with min.insync.replicas=1, the loss of a server can lose acknowledged events. For
// topics with three replicas or more that the sink makes, it sets min.insync.replicas=2.
//
// A topic belongs to one log. If the topic ends with an event of another log, the sink
// refuses to write it; that log needs another prefix. Records of other programs are passed
// over, unless they are CloudEvents too.
//
// # Retention
//
// Kafka removes old records by itself, as retention.ms and retention.bytes of the topic
// say. Relays do not trim topics.
//
// # Imports
//
// A [Source] reads committed records only, of all partitions of the topics of a namespace.
// Its positions are offsets and epochs of leaders, which the importing database keeps; it
// joins no consumer group. If Kafka has removed records that were not read, the import goes on
// behind them and tells it. If a topic was deleted and made again, or has lost records, the
// import refuses to go on, also when the topic has others at their offsets since.
//
// # Servers
//
// The package is tested with Kafka 4.4. With access control the user needs Describe, Read,
// Write and DescribeConfigs on the topics, Create if the sink makes topics, and Describe
// and Write on the transactional id. An import needs Describe and Read on the topics.
package kafka
