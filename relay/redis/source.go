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

// Source reads what sinks wrote, for an import, and registers its reader as a
// consumer group. The position of an entry is its id, and after a slash how many
// entries the stream had been given with it, where the server counts them.
type Source struct {
	link    *link
	reading sync.WaitGroup
}

var _ posthorn.Source = (*Source)(nil)

// OpenSource opens the streams at a URL for reading. Only the prefix, TLS and the
// timeout of the config matter. It does not connect: what is wrong with the server
// the first call says.
func OpenSource(_ context.Context, url string, config Config) (*Source, error) {
	t, err := parseURL(url, config)
	if err != nil {
		return nil, fmt.Errorf("open redis: %w: %w", posthorn.ErrInvalid, err)
	}
	return &Source{link: &link{target: t}}, nil
}

// Kind is redis.
func (s *Source) Kind() string { return "redis" }

// String is the URL without what is secret in it.
func (s *Source) String() string { return s.link.address }

// Close ends all connections, and with them what waits.
func (s *Source) Close() error {
	err := s.link.close()
	s.reading.Wait()
	return err
}

// Streams lists the streams that sinks with the same prefix wrote, whether they
// have entries or not.
func (s *Source) Streams(ctx context.Context) ([]string, error) {
	if err := s.link.open(ctx); err != nil {
		return nil, fmt.Errorf("streams of redis: %w", err)
	}
	streams := []string{}
	seen := map[string]bool{} // a scan may say things twice
	all := s.link.client.SScan(ctx, setOfStreams(s.link.prefix), 0, "", 1000).Iterator()
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

// Behind counts the entries after a position. Where the server does not count what
// it is given (before Redis 7), that is as many as the stream has.
func (s *Source) Behind(ctx context.Context, stream, position string) (events int64, oldest time.Time, err error) {
	if err := s.link.open(ctx); err != nil {
		return 0, oldest, fmt.Errorf("look at stream %q: %w", stream, err)
	}
	key, at := s.link.prefix+stream, placeOf(position)
	info, err := s.link.client.XInfoStream(ctx, key).Result()
	if isNoKey(err) || err == nil && (info.Length == 0 || !less(at.from(), info.LastGeneratedID)) {
		return 0, oldest, nil
	}
	var next []redis.XMessage
	if err == nil {
		next, err = s.link.client.XRangeN(ctx, key, after(at.from()), "+", 1).Result()
	}
	if err := s.link.check(ctx, err); err != nil {
		return 0, oldest, fmt.Errorf("look at stream %q: %w", stream, err)
	}
	if len(next) == 0 {
		return 0, oldest, nil
	}
	ms, _, _ := split(next[0].ID)
	events = info.Length
	if at.counted && info.EntriesAdded >= info.Length {
		events = min(max(info.EntriesAdded-at.count, 1), info.Length)
	}
	return events, time.UnixMilli(int64(ms)), nil
}

// Keep makes a consumer group of the key, or moves it. Its lag shows in XINFO
// GROUPS.
func (s *Source) Keep(ctx context.Context, group, stream, passed string) error {
	if err := s.link.open(ctx); err != nil {
		return fmt.Errorf("keep stream %q: %w", stream, err)
	}
	key, at := s.link.prefix+stream, placeOf(passed).from()
	err := s.link.client.XGroupSetID(ctx, key, group, at).Err()
	if isNoKey(err) || errorCode(err) == "NOGROUP" {
		err = s.link.client.XGroupCreateMkStream(ctx, key, group, at).Err()
		if errorCode(err) == "BUSYGROUP" { // another process was faster
			err = s.link.client.XGroupSetID(ctx, key, group, at).Err()
		}
	}
	if err := s.link.check(ctx, err); err != nil {
		return fmt.Errorf("keep stream %q: %w", stream, err)
	}
	return nil
}

// isNoKey: the stream does not exist, in the words of XINFO and XGROUP.
func isNoKey(err error) bool {
	var answered redis.Error
	return errors.As(err, &answered) && (strings.HasPrefix(answered.Error(), "ERR no such key") ||
		strings.HasPrefix(answered.Error(), "ERR The XGROUP subcommand requires the key to exist"))
}

// Read reads what there is, or waits for it; see [posthorn.Source].
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
	case <-ctx.Done(): // nothing is lost: what was read is not passed
		return nil, fmt.Errorf("read from redis: %w", context.Cause(ctx))
	}
}
