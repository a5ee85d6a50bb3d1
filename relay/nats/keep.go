package nats

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"
)

// The position of an import in a stream is stored under a key in a JetStream bucket. A
// durable consumer could store it as well, but to move the acknowledgements of a
// consumer, the server would have to deliver the messages again.

func bucketName(prefix string) string { return prefix + "_groups" }

// positionKeys returns the prefix of the keys that have the positions in a stream.
func (n names) positionKeys(stream string) string {
	return n.namespace + "." + escapeName(stream) + "."
}

// SavePosition stores the position of an import in a stream. Trimming does not remove the
// messages after it.
func (s *Source) SavePosition(ctx context.Context, group, stream, passed string) error {
	position, err := parsePosition(passed)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	bucket, err := s.openBucket(ctx, stream)
	if err == nil {
		_, err = bucket.Put(ctx, s.names.positionKeys(stream)+escapeName(group), strconv.AppendUint(nil, position, 10))
	}
	if err != nil {
		return fmt.Errorf("store position of %q in stream %q of nats: %w", group, stream, err)
	}
	return nil
}

// openBucket opens the bucket, or creates it with as many replicas as the stream has.
func (s *Source) openBucket(ctx context.Context, stream string) (jetstream.KeyValue, error) {
	s.mu.Lock()
	bucket := s.bucket
	s.mu.Unlock()
	if bucket != nil {
		return bucket, nil
	}
	replicas := s.config.Replicas
	found, err := s.js.Stream(ctx, s.names.stream(stream))
	switch {
	case err == nil:
		replicas = max(replicas, found.CachedInfo().Config.Replicas)
	case !errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, err
	}
	config := jetstream.KeyValueConfig{
		Bucket: bucketName(s.config.Prefix), Description: "positions of Posthorn's imports",
		History: 1, Replicas: replicas,
	}
	bucket, err = s.js.KeyValue(ctx, config.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		bucket, err = s.js.CreateKeyValue(ctx, config)
		if errors.Is(err, jetstream.ErrBucketExists) { // another process created it first
			bucket, err = s.js.KeyValue(ctx, config.Bucket)
		}
	}
	if err != nil {
		return nil, err
	}
	status, err := bucket.Status(ctx)
	if err != nil {
		return nil, err
	}
	if config := status.Config(); config.Replicas < replicas {
		config.Replicas = replicas
		if bucket, err = s.js.UpdateKeyValue(ctx, config); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bucket = bucket
	return bucket, nil
}
