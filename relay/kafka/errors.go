package kafka

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
)

// explain adds a hint to an error of Kafka.
func explain(err error) error {
	hint := ""
	switch {
	case isFenced(err):
		hint = "Another process has taken the lead of the relay, or another relay has the same name: give each relay of a namespace that writes to this Kafka a name of its own."
	case errors.Is(err, kerr.InvalidTopicException):
		hint = "Kafka does not tell . and _ in names of topics apart, so that two streams whose names differ in these only cannot both be written. Rename one of them."
	case errors.Is(err, kerr.InvalidReplicationFactor):
		hint = "Kafka has fewer servers than the topic needs replicas: ask for fewer with ?replicas=1."
	case errors.Is(err, kerr.TopicAuthorizationFailed):
		hint = "Allow the user Describe, Read, Write and DescribeConfigs on the topics, and Create unless the URL has create=false."
	case errors.Is(err, kerr.TransactionalIDAuthorizationFailed):
		hint = "Allow the user Describe and Write on transactional ids that begin with the prefix, which is posthorn unless the URL has another."
	case errors.Is(err, kerr.SaslAuthenticationFailed), errors.Is(err, kerr.UnsupportedSaslMechanism):
		hint = "Check the user, the password, and the mechanism in ?sasl=…."
	case errors.Is(err, kerr.ClusterAuthorizationFailed):
		hint = hangs
	case errors.Is(err, kerr.MessageTooLarge), errors.Is(err, kerr.RecordListTooLarge):
		hint = "Raise " + limitSetting + " of the topic. If the user may DescribeConfigs of the topic, an event that is too large becomes a dead letter."
	case errors.Is(err, kerr.NotEnoughReplicas), errors.Is(err, kerr.NotEnoughReplicasAfterAppend):
		hint = "Too few replicas of the topic are in sync: see min.insync.replicas."
	default:
		return err
	}
	return &hinted{err, err.Error(), hint}
}

// isFenced reports whether Kafka has given the epoch of the transactional id away.
func isFenced(err error) bool {
	return errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch) || errors.Is(err, kerr.InvalidProducerIDMapping)
}
