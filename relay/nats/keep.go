package nats

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/nats-io/nats.go/jetstream"
)

// What a group of Posthorn's has passed is a key in a bucket of JetStream's: it
// survives restarts, and moves without a message being delivered once more, which
// the acknowledgements of a durable consumer would need.

func bucketName(prefix string) string { return prefix + "_groups" }

func (n names) keptKeys(stream string) string {
	return n.namespace + "." + escape(stream, "") + "."
}

// Keep says that a group has passed a position.
func (s *Source) Keep(ctx context.Context, group, stream, passed string) error {
	position, err := parsePosition(passed)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	kept, err := s.bucket(ctx, stream)
	if err == nil {
		_, err = kept.Put(ctx, s.names.keptKeys(stream)+escape(group, ""), strconv.AppendUint(nil, position, 10))
	}
	if err != nil {
		return fmt.Errorf("keep what group %q needs of stream %q of nats: %w", group, stream, err)
	}
	return nil
}

// bucket opens the bucket, or makes it with as many replicas as the stream has.
func (s *Source) bucket(ctx context.Context, stream string) (jetstream.KeyValue, error) {
	s.mu.Lock()
	kept := s.kept
	s.mu.Unlock()
	if kept != nil {
		return kept, nil
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
		Bucket: bucketName(s.config.Prefix), Description: "what groups of posthorn have passed",
		History: 1, Replicas: replicas,
	}
	kept, err = s.js.KeyValue(ctx, config.Bucket)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		kept, err = s.js.CreateKeyValue(ctx, config)
		if errors.Is(err, jetstream.ErrBucketExists) { // somebody else made it
			kept, err = s.js.KeyValue(ctx, config.Bucket)
		}
	}
	if err != nil {
		return nil, err
	}
	status, err := kept.Status(ctx)
	if err != nil {
		return nil, err
	}
	if was := status.Config(); was.Replicas < replicas {
		was.Replicas = replicas
		if kept, err = s.js.UpdateKeyValue(ctx, was); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.kept = kept
	return kept, nil
}
