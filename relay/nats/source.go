package nats

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthorn/posthorn"
)

// Source reads the streams of a namespace, for an import. The position of a message
// is its sequence. A Source is safe for concurrent use, as long as no two calls of Read
// have a stream in common.
type Source struct {
	address string
	config  Config
	names   names
	conn    *natsgo.Conn
	js      jetstream.JetStream

	mu        sync.Mutex
	followers map[string]*follower
	bucket    jetstream.KeyValue // positions of imports; nil until Keep opens it
}

var _ posthorn.Source = (*Source)(nil)

// OpenSource returns a source for the streams that were published in a namespace. If
// the servers are down, the source connects in the background, and until then its
// methods return an error.
func OpenSource(ctx context.Context, text, namespace string, config Config) (*Source, error) {
	config, at, err := config.withURL(text)
	if err != nil {
		return nil, err
	}
	s := &Source{
		address: at.address, config: config, names: names{config.Prefix, namespace}, followers: map[string]*follower{},
	}
	s.conn, err = config.connect(ctx, at.servers, natsgo.RetryOnFailedConnect(true), natsgo.DisconnectErrHandler(func(_ *natsgo.Conn, err error) {
		s.failFollowers(fmt.Errorf("connection to nats: %w", errors.Join(err, errDisconnected)))
	}))
	if err != nil {
		return nil, err
	}
	if s.js, err = jetstream.New(s.conn, jetstream.WithDefaultTimeout(config.Timeout)); err != nil {
		s.conn.Close()
		return nil, err
	}
	return s, nil
}

// Streams lists the streams of the namespace.
func (s *Source) Streams(ctx context.Context) ([]string, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	var streams []string
	list := s.js.ListStreams(ctx, jetstream.WithStreamListSubject(s.names.all()+">"))
	for info := range list.Info() {
		if stream, ours := s.names.streamOf(info.Config.Subjects); ours {
			streams = append(streams, stream)
		}
	}
	if err := list.Err(); err != nil {
		return nil, fmt.Errorf("list streams of nats: %w", err)
	}
	slices.Sort(streams)
	return streams, nil
}

// Kind returns "nats".
func (s *Source) Kind() string { return "nats" }

// String returns the URL without credentials.
func (s *Source) String() string { return s.address }

// Lag returns the number of messages after a position, and the time of the first of
// them. Messages that were deleted in the middle of the stream count as well.
func (s *Source) Lag(ctx context.Context, stream, position string) (events int64, oldest time.Time, err error) {
	passed, err := parsePosition(position)
	if err != nil {
		return 0, oldest, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	found, err := s.js.Stream(ctx, s.names.stream(stream))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, oldest, nil
	}
	var next *jetstream.RawStreamMsg
	if err == nil {
		state := found.CachedInfo().State
		passed = max(passed, state.FirstSeq-min(state.FirstSeq, 1))
		if state.LastSeq <= passed {
			return 0, oldest, nil
		}
		events = int64(state.LastSeq - passed)
		next, err = found.GetMsg(ctx, passed+1, jetstream.WithGetMsgSubject(">"))
	}
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound): // all messages after the position were deleted
		return 0, oldest, nil
	case err != nil:
		return 0, oldest, fmt.Errorf("lag of stream %q of nats: %w", stream, err)
	}
	return events, next.Time, nil
}

// lastSequence returns the last sequence of a stream, or 0 if the stream does not exist.
func (s *Source) lastSequence(ctx context.Context, stream string) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	found, err := s.js.Stream(ctx, s.names.stream(stream))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("info of stream %q of nats: %w", stream, err)
	}
	return found.CachedInfo().State.LastSeq, nil
}

const (
	missingInterval = time.Second // between checks whether a missing stream was created
	idleTimeout     = time.Minute // after which a follower that is not read is stopped
	maxStarts       = 32          // followers that are started concurrently
)

// Read returns the next entries, or waits for them; see [posthorn.Source]. The first
// call for a stream starts a follower, which later calls use.
func (s *Source) Read(ctx context.Context, after map[string]string, limit int, wait time.Duration) ([]posthorn.SourceEntry, error) {
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	missing := time.NewTicker(missingInterval)
	defer missing.Stop()
	arrived := make(chan struct{}, 1)
	for {
		followers, err := s.follow(ctx, after, arrived)
		if err != nil {
			return nil, err
		}
		for check := false; !check; {
			entries, err := collect(followers, limit)
			if err != nil || len(entries) > 0 {
				return entries, err
			}
			select {
			case <-arrived:
			case <-missing.C:
				check = true
			case <-timeout.C:
				return nil, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
}

// collect takes the same number of entries from each follower, and fills up with the
// rest. If there are no entries, it returns the error of a follower that has failed.
func collect(followers []*follower, limit int) (entries []posthorn.SourceEntry, err error) {
	for i, f := range followers {
		share := (limit - len(entries)) / (len(followers) - i)
		entries = f.take(entries, max(share, 1))
		if len(entries) >= limit {
			return entries, nil
		}
	}
	for _, f := range followers {
		if entries = f.take(entries, limit-len(entries)); len(entries) >= limit {
			break
		}
	}
	if len(entries) > 0 {
		return entries, nil
	}
	for _, f := range followers {
		if err := f.failure(); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// follow returns the followers of all existing streams, each at the requested position.
func (s *Source) follow(ctx context.Context, after map[string]string, arrived chan struct{}) ([]*follower, error) {
	var (
		mu        sync.Mutex
		followers []*follower
		failure   error
		started   sync.WaitGroup
		sem       = make(chan struct{}, maxStarts)
	)
	for stream, text := range after {
		position, err := parsePosition(text)
		if err != nil {
			return nil, fmt.Errorf("read stream %q of nats: %w", stream, err)
		}
		s.mu.Lock()
		f := s.followers[stream]
		s.mu.Unlock()
		if f != nil && f.continues(position, arrived) {
			mu.Lock()
			followers = append(followers, f)
			mu.Unlock()
			continue
		}
		sem <- struct{}{}
		started.Go(func() {
			defer func() { <-sem }()
			f, err := s.restart(ctx, stream, position, arrived)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failure = fmt.Errorf("read stream %q of nats: %w", stream, err)
			} else if f != nil {
				followers = append(followers, f)
			}
		})
	}
	started.Wait()
	s.stopIdle()
	return followers, failure
}

func parsePosition(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	position, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, invalid("the position "+strconv.Quote(text)+" is invalid", "A position in nats is a sequence of the stream.")
	}
	return position, nil
}

// restart replaces the follower of a stream by one that starts after a position. It
// returns nil if the stream has no messages yet.
func (s *Source) restart(ctx context.Context, stream string, position uint64, arrived chan struct{}) (*follower, error) {
	s.mu.Lock()
	old := s.followers[stream]
	delete(s.followers, stream)
	s.mu.Unlock()
	if old != nil {
		old.stop()
	}
	last, err := s.lastSequence(ctx, stream)
	if err != nil {
		return nil, err
	}
	if last < position {
		return nil, refused(fmt.Sprintf("the stream ends at %d, before the position %d of the import: it was deleted or has lost messages", last, position),
			"Restore the stream, or import it from its beginning after: posthorn imports delete NAME.")
	}
	if last == 0 {
		return nil, nil
	}
	f, err := s.start(ctx, stream, position, arrived)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.followers == nil {
		f.stop()
		return nil, posthorn.ErrClosed
	}
	s.followers[stream] = f
	return f, nil
}

// stopIdle stops the followers that were not read for idleTimeout.
func (s *Source) stopIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for stream, f := range s.followers {
		if f.idle() {
			delete(s.followers, stream)
			f.stop()
		}
	}
}

func (s *Source) failFollowers(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.followers {
		f.fail(err)
	}
}

// Close stops all followers and closes the connection.
func (s *Source) Close() error {
	s.mu.Lock()
	followers := slices.Collect(maps.Values(s.followers))
	s.followers = nil
	s.mu.Unlock()
	for _, f := range followers {
		f.stop()
	}
	s.conn.Close()
	for _, f := range followers {
		<-f.ended
	}
	return nil
}
