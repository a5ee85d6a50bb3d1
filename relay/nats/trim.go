package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// idsPerCall is the number of ids that one call of needed checks.
const idsPerCall = 5000

// Trim removes the oldest messages of a stream that neither [Config].Keep nor KeepFor
// protects; see [posthorn.Trimmer]. It keeps the messages that the archive needs, that
// an import has not read, or that a durable consumer of JetStream has not acknowledged.
func (s *Sink) Trim(ctx context.Context, namespace, stream string, needed func(ctx context.Context, ids []int64) ([]int64, error)) error {
	if s.config.KeepFor == 0 && s.config.Keep == 0 {
		return nil
	}
	if err := s.trim(ctx, names{s.config.Prefix, namespace}, stream, needed); err != nil {
		return fmt.Errorf("trim stream %q of nats: %w", stream, err)
	}
	return nil
}

func (s *Sink) trim(ctx context.Context, n names, stream string, needed func(ctx context.Context, ids []int64) ([]int64, error)) error {
	found, err := s.js.Stream(ctx, n.stream(stream))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	state := found.CachedInfo().State
	if state.Msgs == 0 {
		return nil
	}
	// first is the first message that stays. The state of the stream is read before those
	// of its consumers: a consumer with nothing pending has passed state.LastSeq.
	first := state.LastSeq + 1
	if s.config.Keep > 0 {
		first -= min(first, uint64(s.config.Keep))
	}
	for _, limit := range []func(uint64) (uint64, error){
		func(first uint64) (uint64, error) { return s.limitByAge(ctx, found, first) },
		func(first uint64) (uint64, error) { return s.limitByConsumers(ctx, found, first) },
		func(first uint64) (uint64, error) { return s.limitByImports(ctx, n.positionKeys(stream), first) },
	} {
		if first <= state.FirstSeq {
			return nil
		}
		if first, err = limit(first); err != nil {
			return err
		}
	}
	if first <= state.FirstSeq {
		return nil
	}
	return s.removeBefore(ctx, found, first, needed)
}

// limitByAge returns the first message that is younger than KeepFor, or first if that is
// before it.
func (s *Sink) limitByAge(ctx context.Context, stream jetstream.Stream, first uint64) (uint64, error) {
	if s.config.KeepFor == 0 {
		return first, nil
	}
	// The info of a new consumer that starts at a time has the sequence before the first
	// message since that time. The consumer receives nothing.
	now := stream.CachedInfo().TimeStamp // the clock of the server; old servers do not send it
	if now.IsZero() {
		now = time.Now()
	}
	since := now.Add(-s.config.KeepFor)
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverByStartTimePolicy, OptStartTime: &since,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: s.config.Timeout,
	})
	if err != nil {
		return 0, fmt.Errorf("find the first message since %v: %w", since, err)
	}
	_ = stream.DeleteConsumer(ctx, consumer.CachedInfo().Name) // if this fails, the server deletes it when it is idle
	return min(first, consumer.CachedInfo().Delivered.Stream+1), nil
}

// limitByConsumers returns the first message that a durable consumer needs, or first if
// that is before it.
func (s *Sink) limitByConsumers(ctx context.Context, stream jetstream.Stream, first uint64) (uint64, error) {
	list := stream.ListConsumers(ctx)
	for info := range list.Info() {
		idle := info.NumPending == 0 && info.NumAckPending == 0
		if info.Config.Durable == "" || idle {
			continue
		}
		passed := info.AckFloor.Stream
		if info.Config.AckPolicy == jetstream.AckNonePolicy {
			passed = info.Delivered.Stream
		}
		first = min(first, passed+1)
	}
	return first, list.Err()
}

// limitByImports returns the first message that an import needs, or first if that is
// before it.
func (s *Sink) limitByImports(ctx context.Context, keys string, first uint64) (uint64, error) {
	bucket, err := s.js.KeyValue(ctx, bucketName(s.config.Prefix))
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return first, nil
	}
	if err != nil {
		return 0, err
	}
	watch, err := bucket.Watch(ctx, keys+"*", jetstream.IgnoreDeletes())
	if err != nil {
		return 0, err
	}
	defer func() { _ = watch.Stop() }() // if this fails, the server deletes its consumer when it is idle
	for {
		select {
		case entry, open := <-watch.Updates():
			if !open {
				return 0, errors.New("the positions of imports could not be read")
			}
			if entry == nil { // all entries were received
				return first, nil
			}
			passed, err := strconv.ParseUint(string(entry.Value()), 10, 64)
			if err != nil {
				return 0, fmt.Errorf("key %s of bucket %s has an invalid position: %w", entry.Key(), entry.Bucket(), err)
			}
			first = min(first, passed+1)
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// removeBefore removes the messages before first, up to the first one that the archive
// needs. It checks and removes idsPerCall messages at a time.
func (s *Sink) removeBefore(ctx context.Context, stream jetstream.Stream, first uint64, needed func(ctx context.Context, ids []int64) ([]int64, error)) error {
	var ids []int64
	var at []uint64
	remove := func(upto uint64) (done bool, err error) {
		if len(ids) > 0 {
			wanted, err := needed(ctx, ids)
			if err != nil {
				return true, err
			}
			if i := slices.IndexFunc(ids, among(wanted)); i >= 0 {
				upto, done = at[i], true
			}
		}
		ids, at = ids[:0], at[:0]
		return done, stream.Purge(ctx, jetstream.WithPurgeSequence(upto))
	}
	done := false
	err := s.scan(ctx, stream, first, func(sequence uint64, m jetstream.Msg) (bool, error) {
		if sequence >= first {
			return false, nil
		}
		if e, err := entry(m.Headers(), nil); err == nil { // the archive needs no messages of other programs
			if id, err := strconv.ParseInt(e.ID, 10, 64); err == nil {
				ids, at = append(ids, id), append(at, sequence)
			}
		}
		if len(ids) < idsPerCall {
			return true, nil
		}
		var err error
		done, err = remove(sequence + 1)
		return !done, err
	})
	if err != nil || done {
		return err
	}
	_, err = remove(first)
	return err
}

func among(ids []int64) func(int64) bool {
	set := make(map[int64]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return func(id int64) bool { return set[id] }
}

// scan visits the headers of all messages before a sequence, until visit returns false.
func (s *Sink) scan(ctx context.Context, stream jetstream.Stream, before uint64, visit func(uint64, jetstream.Msg) (bool, error)) error {
	consumer, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		DeliverPolicy: jetstream.DeliverAllPolicy, HeadersOnly: true,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: 2 * s.config.Timeout,
	})
	if err != nil {
		return err
	}
	name := consumer.CachedInfo().Name
	defer func() { _ = stream.DeleteConsumer(ctx, name) }() // if this fails, the server deletes it when it is idle
	messages, err := consumer.Messages(jetstream.PullMaxMessages(1000))
	if err != nil {
		return err
	}
	defer messages.Stop()
	for more := true; more; {
		m, err := messages.Next(jetstream.NextMaxWait(s.config.Timeout))
		if err != nil {
			return fmt.Errorf("read the oldest messages: %w", err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return err
		}
		if more, err = visit(meta.Sequence.Stream, m); err != nil {
			return err
		}
		more = more && meta.Sequence.Stream+1 < before
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}
