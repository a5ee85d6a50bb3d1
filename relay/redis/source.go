package redis

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/posthorn/posthorn"
)

// Source reads the entries of sinks, for an import, and registers the import as a
// consumer group. The position of an entry is its id. If the server counts the entries
// that were ever added to the stream, their number up to the entry follows after a
// slash.
type Source struct {
	link    *link
	reading sync.WaitGroup
}

var _ posthorn.Source = (*Source)(nil)

// OpenSource returns a source for a URL. It uses Prefix, TLS and Timeout of the config
// only. It does not connect: if the server is down, the methods return the error.
func OpenSource(_ context.Context, url string, config Config) (*Source, error) {
	t, err := parseURL(url, config)
	if err != nil {
		return nil, fmt.Errorf("open redis: %w: %w", posthorn.ErrInvalid, err)
	}
	return &Source{link: &link{target: t}}, nil
}

// Kind returns "redis".
func (s *Source) Kind() string { return "redis" }

// String returns the URL without credentials.
func (s *Source) String() string { return s.link.address }

// Close closes all connections. Calls that wait for a reply return an error.
func (s *Source) Close() error {
	err := s.link.close()
	s.reading.Wait()
	return err
}

// Streams lists the streams that sinks with the same prefix have written, including
// empty streams.
func (s *Source) Streams(ctx context.Context) ([]string, error) {
	if err := s.link.open(ctx); err != nil {
		return nil, fmt.Errorf("streams of redis: %w", err)
	}
	streams := []string{}
	seen := map[string]bool{} // a scan may return a member twice
	all := s.link.client.SScan(ctx, streamsKey(s.link.prefix), 0, "", 1000).Iterator()
	for all.Next(ctx) {
		if name := all.Val(); !seen[name] {
			seen[name] = true
			streams = append(streams, name)
		}
	}
	if err := s.link.check(ctx, all.Err()); err != nil {
		return nil, fmt.Errorf("streams of redis: %w", err)
	}
	return streams, nil
}

// Lag returns the number of entries after a position, and the time of the first of
// them. A server before Redis 7 does not count the entries that were added. There,
// Lag returns the length of the stream instead.
func (s *Source) Lag(ctx context.Context, stream, position string) (events int64, oldest time.Time, err error) {
	if err := s.link.open(ctx); err != nil {
		return 0, oldest, fmt.Errorf("lag of stream %q: %w", stream, err)
	}
	key, at := s.link.prefix+stream, parsePosition(position)
	info, err := s.link.client.XInfoStream(ctx, key).Result()
	if isNoKey(err) || err == nil && (info.Length == 0 || !less(at.from(), info.LastGeneratedID)) {
		return 0, oldest, nil
	}
	var next []redis.XMessage
	if err == nil {
		next, err = s.link.client.XRangeN(ctx, key, after(at.from()), "+", 1).Result()
	}
	if err := s.link.check(ctx, err); err != nil {
		return 0, oldest, fmt.Errorf("lag of stream %q: %w", stream, err)
	}
	if len(next) == 0 {
		return 0, oldest, nil
	}
	ms, _, _ := split(next[0].ID)
	events = info.Length
	if at.counted && info.EntriesAdded >= info.Length && next[0].ID != info.FirstEntry.ID {
		events = min(max(info.EntriesAdded-at.count, 1), info.Length)
	}
	return events, time.UnixMilli(int64(ms)), nil
}

// SavePosition creates a consumer group of the key, or moves it to the position. XINFO GROUPS
// shows its lag.
func (s *Source) SavePosition(ctx context.Context, group, stream, passed string) error {
	if err := s.link.open(ctx); err != nil {
		return fmt.Errorf("keep stream %q: %w", stream, err)
	}
	key, at := s.link.prefix+stream, parsePosition(passed).from()
	err := s.link.client.XGroupSetID(ctx, key, group, at).Err()
	if isNoKey(err) || errorCode(err) == "NOGROUP" {
		err = s.link.client.XGroupCreateMkStream(ctx, key, group, at).Err()
		if errorCode(err) == "BUSYGROUP" { // another process created it first
			err = s.link.client.XGroupSetID(ctx, key, group, at).Err()
		}
	}
	if err := s.link.check(ctx, err); err != nil {
		return fmt.Errorf("keep stream %q: %w", stream, err)
	}
	return nil
}

// isNoKey reports whether XINFO or XGROUP failed because the stream does not exist.
func isNoKey(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && (strings.HasPrefix(reply.Error(), "ERR no such key") ||
		strings.HasPrefix(reply.Error(), "ERR The XGROUP subcommand requires the key to exist"))
}

// Read returns the next entries, or waits for them; see [posthorn.Source].
func (s *Source) Read(ctx context.Context, after map[string]string, limit int, wait time.Duration) ([]posthorn.SourceEntry, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	type result struct {
		entries []posthorn.SourceEntry
		err     error
	}
	done := make(chan result, 1)
	s.reading.Go(func() {
		entries, err := s.read(ctx, after, limit, wait)
		done <- result{entries, err}
	})
	select {
	case r := <-done:
		if r.err != nil {
			return nil, fmt.Errorf("read from redis: %w", r.err)
		}
		return r.entries, nil
	case <-ctx.Done(): // entries that are read meanwhile are not lost: the caller's positions have not moved
		return nil, fmt.Errorf("read from redis: %w", context.Cause(ctx))
	}
}
