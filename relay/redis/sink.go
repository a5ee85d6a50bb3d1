package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/relay"
)

// NoReplicas as [Config.Replicas] means that a write need not be replicated.
const NoReplicas = -1

// Config configures a [Sink] or a [Source]. The zero value has sound defaults.
// Parameters of the URL take precedence.
type Config struct {
	// Replicas is the number of replicas that must have an entry before it counts as
	// written. Redis replicates asynchronously, and a failover loses entries that no
	// replica has. Defaults to 1 if the server has replicas when the sink is first
	// used, and else to none.
	Replicas int
	// Prefix is prepended to the name of a stream to form its key.
	Prefix string
	// Keep and KeepFor limit what trimming removes: it keeps the newest Keep entries
	// of each stream, and all entries that are younger than KeepFor. If both are zero,
	// nothing is trimmed.
	Keep    int
	KeepFor time.Duration
	// Timeout limits each exchange with the server. Defaults to 10 seconds.
	Timeout time.Duration
	// TLS is the configuration for rediss:// URLs. Defaults to the certificate
	// authorities of the system, and TLS 1.2 or newer.
	TLS *tls.Config
}

// Sink writes events to Redis Streams. It is safe for concurrent use, as long as no
// two calls write the same stream.
type Sink struct {
	link *link

	mu              sync.Mutex
	ends            map[string]streamEnd // by key
	registered      map[string]bool      // keys that this sink has added to the set of streams
	registeredSince time.Time            // when registered was last cleared
	writing         sync.WaitGroup
	maxEntry        int
}

// streamEnd is the end of a stream that this sink has written.
type streamEnd struct {
	lead   int64  // under which it was written
	last   string // the id of the last event
	before int64  // the highest id that the stream had when this lead came to it
}

// maxRemembered limits the number of streams whose end a sink remembers. The sink asks
// the server for the end of other streams.
const maxRemembered = 1 << 16

// registerInterval is how often a sink registers its streams again, since a failover
// may lose additions to the set of streams.
const registerInterval = time.Minute

// Open returns a sink for a URL; see the package documentation. It does not connect:
// if the server is down, [Sink.Write] returns the error.
func Open(_ context.Context, url string, config Config) (*Sink, error) {
	t, err := parseURL(url, config)
	if err != nil {
		return nil, fmt.Errorf("open redis: %w", err)
	}
	return &Sink{
		link: &link{target: t},
		ends: map[string]streamEnd{}, registered: map[string]bool{}, maxEntry: maxBulk,
	}, nil
}

// Close closes all connections. Writes that wait for a reply return an error.
func (s *Sink) Close() error {
	err := s.link.close()
	s.writing.Wait()
	return err
}

// Write writes events; see [posthorn.Sink]. When ctx ends it returns even if the
// server does not reply. Redis may still execute commands that were sent before.
func (s *Sink) Write(ctx context.Context, batch posthorn.SinkBatch) error {
	if len(batch.Events) == 0 {
		return nil
	}
	if err := contextErr(ctx); err != nil {
		return fmt.Errorf("write to redis: %w", err)
	}
	done := make(chan error, 1)
	s.writing.Go(func() { done <- s.write(ctx, batch) })
	select {
	case err := <-done:
		var some posthorn.EventErrors
		if ended := contextErr(ctx); err != nil && ended != nil && !errors.As(err, &some) {
			return fmt.Errorf("%w (%w)", err, ended)
		}
		return err
	case <-ctx.Done():
		return fmt.Errorf("write to redis: %w", context.Cause(ctx))
	}
}

// contextErr returns why ctx has ended, or nil. It checks the deadline itself, since
// a connection may report the deadline before the context does.
func contextErr(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return context.Cause(ctx)
}

func (s *Sink) write(ctx context.Context, batch posthorn.SinkBatch) error {
	if err := s.link.open(ctx); err != nil {
		return fmt.Errorf("write to redis: %w", err)
	}
	batches := s.split(batch)
	for round := 0; contextErr(ctx) == nil; round++ {
		open := unfinished(batches)
		if len(open) == 0 {
			break
		}
		if round > 0 {
			s.link.refresh(ctx)
		}
		if round == maxRounds {
			for _, b := range open {
				b.fail(fmt.Errorf("no progress after %d attempts: %w", maxRounds, b.retryCause))
			}
			break
		}
		s.round(ctx, open, batch)
	}
	s.remember(batch.Lead, batches)
	if serverFailed(batches) {
		s.link.reload(ctx)
	}
	return result(ctx, batches)
}

// maxRounds is how often a call of Write tries to append to a stream. An attempt is
// repeated when another relay writes to the stream, or a slot of the Cluster moves.
const maxRounds = 5

// round writes unfinished batches, to all servers concurrently.
func (s *Sink) round(ctx context.Context, open []*streamBatch, batch posthorn.SinkBatch) {
	byNode := map[*redis.Client][]*streamBatch{}
	for _, b := range open {
		node, err := s.link.node(ctx, b.key)
		if err == nil && b.movingTo != "" {
			node, err = s.link.nodeAt(ctx, b.movingTo)
		}
		if err != nil {
			b.fail(explain(err))
			continue
		}
		byNode[node] = append(byNode[node], b)
	}
	var all sync.WaitGroup
	for node, batches := range byNode {
		w := &nodeWriter{
			ctx: ctx, node: node, source: relay.Source(batch.Log, batch.Namespace), lastID: batch.LastID,
			replicas: s.link.replicas, timeout: s.link.timeout, register: s.register,
		}
		if len(byNode) == 1 {
			w.write(batches)
			break
		}
		all.Go(func() { w.write(batches) })
	}
	all.Wait()
}

// register adds streams to the set of streams, in which sources find them. A stream
// without events is added again: the server may have come back without data.
func (s *Sink) register(ctx context.Context, batches []*streamBatch) error {
	var add []any
	s.mu.Lock()
	if len(s.registered) > maxRemembered || time.Since(s.registeredSince) > registerInterval {
		clear(s.registered)
		s.registeredSince = time.Now()
	}
	for _, b := range batches {
		if !s.registered[b.key] || b.last == "" {
			add = append(add, b.stream)
		}
	}
	s.mu.Unlock()
	if len(add) == 0 {
		return nil
	}
	if err := s.link.client.SAdd(ctx, streamsKey(s.link.prefix), add...).Err(); err != nil {
		return explain(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range batches {
		s.registered[b.key] = true
	}
	return nil
}

// serverFailed reports whether a batch failed because of the server, and not because
// of its stream.
func serverFailed(batches []*streamBatch) bool {
	return slices.ContainsFunc(batches, func(b *streamBatch) bool { return b.err != nil && !b.streamErr })
}

// streamsKey is the key of the set of all streams that sinks have written.
func streamsKey(prefix string) string { return prefix + "posthorn:streams" }

// remember stores the end of each stream that was written completely, and forgets those
// of all others. It also forgets a stream that ends with an event of a later batch, which
// was written before: that batch is compared with the stream.
func (s *Sink) remember(lead int64, batches []*streamBatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ends) > maxRemembered {
		clear(s.ends)
	}
	for _, b := range batches {
		if b.err == nil && b.known && b.replicated == len(b.events) && b.countUpTo(b.last) > 0 {
			s.ends[b.key] = streamEnd{lead: lead, last: b.last, before: b.before}
		} else {
			delete(s.ends, b.key)
		}
	}
}

// result returns the result of Write. If nothing was written because of the server,
// result returns that error, and otherwise the errors by event.
func result(ctx context.Context, batches []*streamBatch) error {
	failed := posthorn.EventErrors{}
	var common error
	nothing := true // so far no event was written, and all errors are of the server
	for _, b := range batches {
		for id, err := range b.refused {
			failed[id], nothing = posthorn.Permanent(err), false
		}
		if b.err == nil && b.replicated < len(b.events) {
			b.fail(contextErr(ctx))
		}
		if b.err == nil {
			nothing = false
			continue
		}
		nothing = nothing && b.replicated == 0 && !b.streamErr
		if common == nil {
			common = b.err
		}
		for _, e := range b.events[b.replicated:] {
			failed[e.ID] = b.err
		}
	}
	switch {
	case nothing && common != nil:
		return fmt.Errorf("write to redis: %w", common)
	case len(failed) > 0:
		return failed
	}
	return nil
}
