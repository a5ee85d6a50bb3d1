package redis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/relay"
)

// NoReplicas as [Config.Replicas] means that the server alone is enough.
const NoReplicas = -1

// Config says how to write. Its zero value is a sound default. What the URL says
// has precedence.
type Config struct {
	// Replicas is how many replicas must have an entry before it counts as written.
	// Redis replicates afterwards: a failover loses what no replica has. Default: 1
	// where there are replicas when the sink is first used, and otherwise none.
	Replicas int
	// Prefix stands before the names of streams in their keys.
	Prefix string
	// Keep and KeepFor say what trimming leaves: that many entries of each stream, and
	// those that are not as old. With both, what either wants to stay does. With none,
	// which is the default, nothing is trimmed.
	Keep    int
	KeepFor time.Duration
	// Timeout bounds each exchange with the server. Default 10 s.
	Timeout time.Duration
	// TLS is for rediss:// URLs. Default: the system's authorities, TLS 1.2 or newer.
	TLS *tls.Config
	// Logger is told what no error tells. Default: slog.Default().
	Logger *slog.Logger
}

// Sink writes events to Redis Streams. It may be used by many goroutines, each
// with streams of its own.
type Sink struct {
	link   *link
	logger *slog.Logger

	mu       sync.Mutex
	last     map[string]string // by key: the id of the event that this sink wrote last
	listed   map[string]bool   // keys in the set of streams
	since    time.Time         // when listed was empty
	writing  sync.WaitGroup
	maxEntry int
}

// maxRemembered bounds what a sink knows of streams. Of others it asks first.
const maxRemembered = 1 << 16

// listAgain: a failover may lose what is in the set of streams.
const listAgain = time.Minute

// Open makes a sink for a Redis by URL; package docs have the forms. It does not
// connect: a Redis that is down is an error of [Sink.Write].
func Open(_ context.Context, url string, config Config) (*Sink, error) {
	t, err := parseURL(url, config)
	if err != nil {
		return nil, fmt.Errorf("open redis: %w", err)
	}
	if config.Logger == nil {
		config.Logger = slog.Default()
	}
	return &Sink{
		link: &link{target: t}, logger: config.Logger,
		last: map[string]string{}, listed: map[string]bool{}, maxEntry: maxBulk,
	}, nil
}

// Close ends all connections, and with them the writes that wait for an answer.
func (s *Sink) Close() error {
	err := s.link.close()
	s.writing.Wait()
	return err
}

// Write writes events; see [posthorn.Sink]. It returns when ctx ends, also while
// Redis does not answer: then what was sent may still be written.
func (s *Sink) Write(ctx context.Context, batch posthorn.SinkBatch) error {
	if len(batch.Events) == 0 {
		return nil
	}
	if err := over(ctx); err != nil {
		return fmt.Errorf("write to redis: %w", err)
	}
	done := make(chan error, 1)
	s.writing.Go(func() { done <- s.write(ctx, batch) })
	select {
	case err := <-done:
		var some posthorn.EventErrors
		if ended := over(ctx); err != nil && ended != nil && !errors.As(err, &some) {
			return fmt.Errorf("%w (%w)", err, ended)
		}
		return err
	case <-ctx.Done():
		return fmt.Errorf("write to redis: %w", context.Cause(ctx))
	}
}

// over says why a context has ended. A connection may notice a deadline before the
// context does.
func over(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return context.Cause(ctx)
}

func (s *Sink) write(ctx context.Context, batch posthorn.SinkBatch) error {
	if err := s.link.open(ctx); err != nil {
		return fmt.Errorf("write to redis: %w", err)
	}
	flows := s.flows(batch)
	if err := s.list(ctx, flows); err != nil {
		return fmt.Errorf("write to redis: %w", err)
	}
	for round := 0; over(ctx) == nil; round++ {
		open := unfinished(flows)
		if len(open) == 0 {
			break
		}
		if round > 0 {
			s.link.refresh(ctx)
		}
		if round == maxRounds {
			for _, f := range open {
				f.failed(fmt.Errorf("the stream got nowhere: %w", f.trouble))
			}
			break
		}
		s.round(ctx, open, relay.Source(batch.Origin, batch.Namespace))
	}
	s.remember(flows)
	if failing(flows) {
		s.link.reload(ctx)
	}
	return outcome(ctx, flows)
}

// maxRounds is how often a stream is looked at again within one call, when somebody
// else writes to it or a Cluster changes.
const maxRounds = 5

// round writes what is open, to each server at the same time.
func (s *Sink) round(ctx context.Context, open []*flow, source string) {
	byNode := map[*redis.Client][]*flow{}
	for _, f := range open {
		node, err := s.link.node(ctx, f.key)
		if err == nil && f.asked != "" {
			node, err = s.link.nodeAt(ctx, f.asked)
		}
		if err != nil {
			f.failed(explain(err))
			continue
		}
		byNode[node] = append(byNode[node], f)
	}
	var all sync.WaitGroup
	for node, flows := range byNode {
		p := &pass{ctx: ctx, node: node, source: source, replicas: s.link.replicas, timeout: s.link.timeout}
		if len(byNode) == 1 {
			p.run(flows)
			break
		}
		all.Go(func() { p.run(flows) })
	}
	all.Wait()
}

// list adds streams to the set of those that there are, for sources.
func (s *Sink) list(ctx context.Context, flows []*flow) error {
	var add []any
	s.mu.Lock()
	if len(s.listed) > maxRemembered || time.Since(s.since) > listAgain {
		clear(s.listed)
		s.since = time.Now()
	}
	for _, f := range flows {
		if !s.listed[f.key] {
			add = append(add, f.stream)
		}
	}
	s.mu.Unlock()
	if len(add) == 0 {
		return nil
	}
	if err := s.link.client.SAdd(ctx, setOfStreams(s.link.prefix), add...).Err(); err != nil {
		return explain(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range flows {
		s.listed[f.key] = true
	}
	return nil
}

// failing: some stream failed for a reason that is not its own.
func failing(flows []*flow) bool {
	return slices.ContainsFunc(flows, func(f *flow) bool { return f.err != nil && !f.own })
}

// setOfStreams is the key of the set of streams that sinks wrote.
func setOfStreams(prefix string) string { return prefix + "posthorn:streams" }

func (s *Sink) remember(flows []*flow) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.last) > maxRemembered {
		clear(s.last)
	}
	for _, f := range flows {
		if f.err == nil && f.known && f.safe == len(f.events) {
			s.last[f.key] = f.last
		} else {
			delete(s.last, f.key)
		}
	}
}

// outcome is what Write returns.
func outcome(ctx context.Context, flows []*flow) error {
	failed := posthorn.EventErrors{}
	var common error
	whole := true // nothing is written, for one reason that is not of a stream
	for _, f := range flows {
		for id, err := range f.refused {
			failed[id], whole = posthorn.Permanent(err), false
		}
		if f.err == nil && f.safe < len(f.events) {
			f.failed(over(ctx))
		}
		if f.err == nil {
			whole = false
			continue
		}
		whole = whole && f.safe == 0 && !f.own
		if common == nil {
			common = f.err
		}
		for _, e := range f.events[f.safe:] {
			failed[e.ID] = f.err
		}
	}
	switch {
	case whole && common != nil:
		return fmt.Errorf("write to redis: %w", common)
	case len(failed) > 0:
		return failed
	}
	return nil
}
