package kafka

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/posthorn/posthorn"
)

// Source reads the topics of a namespace, for an import. A position is the id of the topic
// and, for each partition, the offset at which it goes on and the epoch of the leader that
// has written the record before it, like kq0Yp…/0:120:7,1:99:3. So neither a topic that was
// deleted and made again nor one that has other records since is taken for the old one. A
// Source is safe for concurrent use, as long as no two calls of Read have a stream in common.
type Source struct {
	config  Config
	address string
	names   names
	// Kafka answers the requests of a connection in their order, and one for records waits
	// until there are some.
	reading, asking broker

	mu       sync.Mutex
	topics   map[string]*topic    // that Streams has seen last, by stream
	short    map[string]string    // streams of topics whose names were shortened, by topic
	followed map[string]*followed // by stream
}

var _ posthorn.Source = (*Source)(nil)

// OpenSource returns a source for the streams that were published in a namespace. It does
// not connect: if the servers are down, the methods return the error.
func OpenSource(_ context.Context, url, namespace string, config Config) (*Source, error) {
	config, options, err := config.withURL(url)
	if err != nil {
		return nil, err
	}
	s := &Source{
		config: config, address: withoutSecrets(url), names: names{config.Prefix, namespace},
		topics: map[string]*topic{}, short: map[string]string{}, followed: map[string]*followed{},
	}
	for _, b := range []*broker{&s.reading, &s.asking} {
		client, err := kgo.NewClient(append(options, kgo.RequestRetries(1))...)
		if err != nil {
			_ = s.Close()
			return nil, fmt.Errorf("open kafka: %w", err)
		}
		*b = broker{client, config.Timeout}
	}
	return s, nil
}

// Close closes all connections. Calls that wait for Kafka return an error.
func (s *Source) Close() error {
	for _, b := range []broker{s.reading, s.asking} {
		if b.client != nil {
			b.client.Close()
		}
	}
	return nil
}

// Kind returns "kafka".
func (s *Source) Kind() string { return "kafka" }

// String returns the URL without credentials.
func (s *Source) String() string { return s.address }

// SavePosition does nothing: Kafka removes records as its topics say, read or not.
func (s *Source) SavePosition(context.Context, string, string, string) error { return nil }

// Streams lists the streams of the namespace.
func (s *Source) Streams(ctx context.Context) ([]string, error) {
	all, _, err := s.asking.find(ctx, nil)
	if err != nil {
		return nil, fmt.Errorf("list streams of kafka: %w", explain(err))
	}
	topics := map[string]*topic{}
	var streams []string
	for name, t := range all {
		stream, ours := s.names.stream(name)
		if ours && stream == "" {
			if stream, err = s.nameOf(ctx, t); err != nil {
				return nil, fmt.Errorf("list streams of kafka: %w", explain(err))
			}
		}
		if stream != "" {
			topics[stream] = t
			streams = append(streams, stream)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.topics = topics
	slices.Sort(streams)
	return streams, nil
}

// nameOf returns the stream of a topic whose name was shortened, or "" as long as the topic
// has no event.
func (s *Source) nameOf(ctx context.Context, t *topic) (string, error) {
	s.mu.Lock()
	stream := s.short[t.name]
	s.mu.Unlock()
	if stream != "" {
		return stream, nil
	}
	if err := s.asking.findCommitted(ctx, t); err != nil {
		return "", err
	}
	stream, err := s.asking.lastName(ctx, s.names, t)
	if err == nil && stream != "" {
		s.mu.Lock()
		s.short[t.name] = stream
		s.mu.Unlock()
	}
	return stream, err
}

// findCommitted sets the begin and the end of the committed records of each partition.
func (b broker) findCommitted(ctx context.Context, t *topic) error {
	topics, errs := map[string]*topic{t.name: t}, map[string]error{}
	err := b.listOffsets(ctx, topics, errs, earliest, readUncommitted, func(p *partition, offset int64) { p.begin = offset })
	if err == nil {
		err = b.listOffsets(ctx, topics, errs, latest, readCommitted, func(p *partition, offset int64) { p.end = offset })
	}
	if err == nil {
		err = errs[t.name]
	}
	return err
}

// Lag returns the number of records after a position, and the time of the first of them.
// Far from the end, marks of transactions count as well.
func (s *Source) Lag(ctx context.Context, stream, position string) (events int64, oldest time.Time, err error) {
	name := s.names.topic(stream)
	topics, errs, err := s.asking.find(ctx, []string{name})
	if err == nil {
		err = errs[name]
	}
	t := topics[name]
	var places map[int32]place
	if err == nil && t != nil {
		if places, err = t.placesOf(position); err == nil {
			err = s.asking.findCommitted(ctx, t)
		}
	}
	if err != nil {
		return 0, oldest, fmt.Errorf("lag of stream %q of kafka: %w", stream, explain(err))
	}
	if t == nil {
		return 0, oldest, nil
	}
	for _, p := range t.partitions {
		n, first, err := s.lagOf(ctx, t, p, max(p.begin, places[p.number].offset))
		if err != nil {
			return 0, oldest, fmt.Errorf("lag of stream %q of kafka: %w", stream, explain(err))
		}
		if n > 0 && (events == 0 || first.Before(oldest)) {
			oldest = first
		}
		events += n
	}
	return events, oldest, nil
}

// lagBytes is how much of a partition is read to find its first record.
const lagBytes = 64 << 10

// lagOf counts the records from an offset to the end of a partition, and returns the time of the
// first one.
func (s *Source) lagOf(ctx context.Context, t *topic, p *partition, from int64) (n int64, first time.Time, err error) {
	for n == 0 && from < p.end {
		pages, err := s.asking.poll(ctx, p.leader, []want{{t, p, place{from, noEpoch}}}, lagBytes, s.config.Timeout/2)
		if err == nil && len(pages) == 1 {
			err = pages[0].err
		}
		if err != nil || len(pages) != 1 || pages[0].next.offset == from {
			return 0, first, err
		}
		from = pages[0].next.offset
		if n = int64(len(pages[0].records)); n > 0 {
			first = pages[0].records[0].Timestamp
		}
	}
	return n + max(0, p.end-from), first, nil
}

const otherTopic = "Restore the topic, or import it from its beginning after: posthorn imports delete NAME."
