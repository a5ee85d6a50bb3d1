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

func init() { posthorn.RegisterSource(openSource, schemes...) }

// source reads what sinks wrote, and registers groups as consumer groups. Positions
// are ids of entries.
type source struct {
	link    *link
	reading sync.WaitGroup
}

func openSource(_ context.Context, config posthorn.SourceConfig) (posthorn.Source, error) {
	t, err := parse(config.URL, Config{})
	if err != nil {
		return nil, fmt.Errorf("open redis: %w: %w", posthorn.ErrInvalid, err)
	}
	return &source{link: &link{target: t}}, nil
}

// Close ends all connections, and with them what waits.
func (s *source) Close() error {
	err := s.link.close()
	s.reading.Wait()
	return err
}

// Streams lists the streams that sinks with the same prefix wrote, whether they
// have entries or not.
func (s *source) Streams(ctx context.Context) ([]string, error) {
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

// End is the id that the stream gave last, of an entry that may be gone.
func (s *source) End(ctx context.Context, stream string) (string, error) {
	if err := s.link.open(ctx); err != nil {
		return "", fmt.Errorf("end of stream %q: %w", stream, err)
	}
	info, err := s.link.client.XInfoStream(ctx, s.link.prefix+stream).Result()
	if isNoKey(err) {
		return "", nil
	}
	if err := s.link.check(ctx, err); err != nil {
		return "", fmt.Errorf("end of stream %q: %w", stream, err)
	}
	return afterNothing(info.LastGeneratedID), nil
}

// afterNothing is the position of the beginning where there was never an entry.
func afterNothing(id string) string {
	if id == "0-0" {
		return ""
	}
	return id
}

// Keep makes a consumer group of the key, or moves it. Its lag shows in XINFO
// GROUPS.
func (s *source) Keep(ctx context.Context, group, stream, passed string) error {
	if err := s.link.open(ctx); err != nil {
		return fmt.Errorf("keep stream %q: %w", stream, err)
	}
	key, at := s.link.prefix+stream, passed
	if at == "" {
		at = "0"
	}
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

// Forget removes the consumer group.
func (s *source) Forget(ctx context.Context, group, stream string) error {
	if err := s.link.open(ctx); err != nil {
		return fmt.Errorf("forget stream %q: %w", stream, err)
	}
	err := s.link.client.XGroupDestroy(ctx, s.link.prefix+stream, group).Err()
	if isNoKey(err) {
		return nil
	}
	if err := s.link.check(ctx, err); err != nil {
		return fmt.Errorf("forget stream %q: %w", stream, err)
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
func (s *source) Read(ctx context.Context, after map[string]string, limit int, wait time.Duration) ([]posthorn.SourceEntry, error) {
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
