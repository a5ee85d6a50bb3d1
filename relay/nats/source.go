package nats

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthorn/posthorn"
)

// Source reads the streams of a namespace, for an import. The position of a message
// is its sequence. Its methods are safe for use by any number of goroutines, as long
// as no two read one stream.
type Source struct {
	address string
	config  Config
	names   names
	conn    *natsgo.Conn
	js      jetstream.JetStream

	mu    sync.Mutex
	tails map[string]*tail
	kept  jetstream.KeyValue // where groups say what they have passed; see Keep
}

var _ posthorn.Source = (*Source)(nil)

// OpenSource opens the streams of a namespace at a URL for reading: of the one that
// they are published in. Servers that are not there are waited for: the calls say
// what is wrong.
func OpenSource(ctx context.Context, text, namespace string, config Config) (*Source, error) {
	u, err := parseURL(text)
	if err != nil {
		return nil, err
	}
	config, servers, err := config.fromURL(u)
	if err != nil {
		return nil, err
	}
	s := &Source{
		address: (&url.URL{Scheme: u.Scheme, Host: u.Host}).String(),
		config:  config, names: names{config.Prefix, namespace}, tails: map[string]*tail{},
	}
	s.conn, err = config.connect(ctx, servers, natsgo.RetryOnFailedConnect(true), natsgo.DisconnectErrHandler(func(_ *natsgo.Conn, err error) {
		s.breakTails(fmt.Errorf("connection to nats: %w", errors.Join(err, errDisconnected)))
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

// Kind is nats.
func (s *Source) Kind() string { return "nats" }

// String is the URL without what is secret in it.
func (s *Source) String() string { return s.address }

// Behind counts the messages after a position.
func (s *Source) Behind(ctx context.Context, stream, position string) (events int64, oldest time.Time, err error) {
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
	case errors.Is(err, jetstream.ErrMsgNotFound): // what comes after was removed
		return 0, oldest, nil
	case err != nil:
		return 0, oldest, fmt.Errorf("look at stream %q of nats: %w", stream, err)
	}
	return events, next.Time, nil
}

// end is 0 for a stream that is not there.
func (s *Source) end(ctx context.Context, stream string) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.Timeout)
	defer cancel()
	found, err := s.js.Stream(ctx, s.names.stream(stream))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("look at stream %q of nats: %w", stream, err)
	}
	return found.CachedInfo().State.LastSeq, nil
}

// How often to look whether a stream has been made that was not there, how long a
// stream is followed that nobody reads, and how many begin to be at a time.
const (
	absentFor = time.Second
	idleFor   = time.Minute
	starting  = 32
)

// Read returns what comes next. Each stream is followed from the first call on, by
// a consumer that the server forgets by itself.
func (s *Source) Read(ctx context.Context, after map[string]string, limit int, wait time.Duration) ([]posthorn.SourceEntry, error) {
	over := time.NewTimer(wait)
	defer over.Stop()
	look := time.NewTicker(absentFor)
	defer look.Stop()
	news := make(chan struct{}, 1)
	for {
		tails, err := s.follow(ctx, after, news)
		if err != nil {
			return nil, err
		}
		// Waits until there is something, or absent streams are to be looked for.
		for looked := false; !looked; {
			entries, err := collect(tails, limit)
			if err != nil || len(entries) > 0 {
				return entries, err
			}
			select {
			case <-news:
			case <-look.C:
				looked = true
			case <-over.C:
				return nil, nil
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
	}
}

// collect takes what the tails have, some of each. What broke is reported when
// there is nothing else.
func collect(tails []*tail, limit int) (entries []posthorn.SourceEntry, err error) {
	for i, t := range tails {
		share := (limit - len(entries)) / (len(tails) - i)
		entries = t.take(entries, max(share, 1))
		if len(entries) >= limit {
			return entries, nil
		}
	}
	for _, t := range tails { // what others left
		if entries = t.take(entries, limit-len(entries)); len(entries) >= limit {
			break
		}
	}
	if len(entries) > 0 {
		return entries, nil
	}
	for _, t := range tails {
		if err := t.broken(); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// follow returns a tail of each stream that is there, at the position asked for.
func (s *Source) follow(ctx context.Context, after map[string]string, news chan struct{}) ([]*tail, error) {
	var (
		mu      sync.Mutex
		tails   []*tail
		failure error
		begun   sync.WaitGroup
		turns   = make(chan struct{}, starting)
	)
	for stream, text := range after {
		position, err := parsePosition(text)
		if err != nil {
			return nil, fmt.Errorf("read stream %q of nats: %w", stream, err)
		}
		s.mu.Lock()
		t := s.tails[stream]
		s.mu.Unlock()
		if t != nil && t.at(position, news) {
			mu.Lock()
			tails = append(tails, t)
			mu.Unlock()
			continue
		}
		turns <- struct{}{}
		begun.Go(func() {
			defer func() { <-turns }()
			t, err := s.restart(ctx, stream, position, news)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				failure = fmt.Errorf("read stream %q of nats: %w", stream, err)
			} else if t != nil {
				tails = append(tails, t)
			}
		})
	}
	begun.Wait()
	s.sweep()
	return tails, failure
}

func parsePosition(text string) (uint64, error) {
	if text == "" {
		return 0, nil
	}
	position, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0, invalid("the position "+strconv.Quote(text)+" is none of nats", "Positions are sequences of the stream.")
	}
	return position, nil
}

// restart follows a stream from a position on; nil if it is not there yet.
func (s *Source) restart(ctx context.Context, stream string, position uint64, news chan struct{}) (*tail, error) {
	s.mu.Lock()
	old := s.tails[stream]
	delete(s.tails, stream)
	s.mu.Unlock()
	if old != nil {
		old.stop()
	}
	end, err := s.end(ctx, stream)
	if err != nil {
		return nil, err
	}
	if end < position {
		return nil, refused(fmt.Sprintf("it ends at %d, before position %d: it was deleted, or has lost messages", end, position),
			"Restore the stream, or begin anew: posthorn imports delete NAME.")
	}
	if end == 0 {
		return nil, nil
	}
	t, err := s.start(ctx, stream, position, news)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tails == nil {
		t.stop()
		return nil, posthorn.ErrClosed
	}
	s.tails[stream] = t
	return t, nil
}

// sweep stops following what nobody has read for a while.
func (s *Source) sweep() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for stream, t := range s.tails {
		if t.idle() {
			delete(s.tails, stream)
			t.stop()
		}
	}
}

func (s *Source) breakTails(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tails {
		t.fail(err)
	}
}

// Close stops following all streams.
func (s *Source) Close() error {
	s.mu.Lock()
	tails := slices.Collect(maps.Values(s.tails))
	s.tails = nil
	s.mu.Unlock()
	for _, t := range tails {
		t.stop()
	}
	s.conn.Close()
	for _, t := range tails {
		<-t.ended
	}
	return nil
}
