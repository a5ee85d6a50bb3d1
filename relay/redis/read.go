package redis

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/relay"
)

const (
	// readStreams is of how many streams one command reads.
	readStreams = 100
	// blockFor is how long a command blocks, at most: so long its connection is busy
	// after the reader has gone.
	blockFor = time.Second
	// In a Cluster one command reads what lies in one slot, so none can wait for
	// several streams. They are looked at again after a pause that grows.
	firstPause = 2 * time.Millisecond
	lastPause  = 100 * time.Millisecond
)

// read takes looks until one finds something. The map is the caller's.
func (s *Source) read(ctx context.Context, positions map[string]string, limit int, wait time.Duration) ([]posthorn.SourceEntry, error) {
	if err := s.link.open(ctx); err != nil {
		return nil, err
	}
	deadline := time.Now().Add(wait)
	pause := firstPause
	for first := true; ; first = false {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		l := &look{link: s.link, after: maps.Clone(positions), limit: limit}
		if err := s.link.check(ctx, l.group(ctx)); err != nil {
			return nil, err
		}
		left := time.Until(deadline)
		if len(l.parts) == 1 && !first && left > 0 {
			l.block = min(left, blockFor)
		}
		if err := s.link.check(ctx, l.run(ctx)); err != nil {
			return nil, err
		}
		if len(l.entries) > 0 || left <= 0 {
			return l.entries, nil
		}
		if len(l.parts) != 1 {
			select {
			case <-time.After(min(pause, left)):
			case <-ctx.Done():
			}
			pause = min(2*pause, lastPause)
		}
	}
}

// look is one look at some streams.
type look struct {
	link    *link
	after   map[string]string // moves on
	limit   int
	block   time.Duration
	parts   []part
	mu      sync.Mutex // guards what follows, and after
	entries []posthorn.SourceEntry
	full    map[string]bool // streams that may have more
}

// part is what one command can read.
type part struct {
	node    *redis.Client
	streams []string
}

// group sorts streams by server and slot. Their order is by chance, so that none is
// always last.
func (l *look) group(ctx context.Context) error {
	type place struct {
		node *redis.Client
		slot uint16
	}
	byPlace := map[place][]string{}
	for stream := range l.after {
		key := l.link.prefix + stream
		node, err := l.link.node(ctx, key)
		if err != nil {
			return err
		}
		p := place{node: node}
		if l.link.kind == cluster {
			p.slot = slot(key)
		}
		byPlace[p] = append(byPlace[p], stream)
	}
	for p, streams := range byPlace {
		for some := range slices.Chunk(streams, readStreams) {
			l.parts = append(l.parts, part{node: p.node, streams: some})
		}
	}
	return nil
}

// run reads until the limit is reached or the streams have no more. A first round
// gives each stream its share, so that one with much does not starve others.
func (l *look) run(ctx context.Context) error {
	parts := l.parts
	for len(parts) > 0 && len(l.entries) < l.limit {
		n := 0
		for _, p := range parts {
			n += len(p.streams)
		}
		l.full = map[string]bool{}
		share := (l.limit - len(l.entries) + n - 1) / n
		if err := l.each(ctx, parts, share); err != nil {
			return err
		}
		var more []part
		for _, p := range parts {
			p.streams = slices.DeleteFunc(slices.Clone(p.streams), func(stream string) bool { return !l.full[stream] })
			if len(p.streams) > 0 {
				more = append(more, p)
			}
		}
		parts = more
	}
	return nil
}

// each reads from all servers at the same time.
func (l *look) each(ctx context.Context, parts []part, share int) error {
	byNode := map[*redis.Client][]part{}
	for _, p := range parts {
		byNode[p.node] = append(byNode[p.node], p)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for node, parts := range byNode {
		all.Go(func() {
			if err := l.from(ctx, node, parts, share); err != nil {
				mu.Lock()
				failed = cmp.Or(failed, err)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return failed
}

// from reads from one server, in one round trip.
func (l *look) from(ctx context.Context, node *redis.Client, parts []part, share int) error {
	if l.block > 0 {
		found, err := node.XRead(ctx, l.args(parts[0], share, l.block)).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return explain(err)
		}
		return l.take(ctx, node, found, share)
	}
	pipe := node.Pipeline()
	reads := make([]*redis.XStreamSliceCmd, len(parts))
	for i, p := range parts {
		reads[i] = pipe.XRead(ctx, l.args(p, share, -1))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for _, read := range reads {
		found, err := read.Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return explain(err)
		}
		if err := l.take(ctx, node, found, share); err != nil {
			return err
		}
	}
	return nil
}

func (l *look) args(p part, share int, block time.Duration) *redis.XReadArgs {
	l.mu.Lock()
	defer l.mu.Unlock()
	args := &redis.XReadArgs{Count: int64(share), Block: block}
	for _, stream := range p.streams {
		args.Streams = append(args.Streams, l.link.prefix+stream)
	}
	for _, stream := range p.streams {
		args.Streams = append(args.Streams, placeOf(l.after[stream]).from())
	}
	return args
}

// take takes what was found, up to the limit.
func (l *look) take(ctx context.Context, node *redis.Client, found []redis.XStream, share int) error {
	heads, err := l.heads(ctx, node, found)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range found {
		stream := strings.TrimPrefix(f.Stream, l.link.prefix)
		at := placeOf(l.after[stream])
		if head, is := heads[f.Stream]; is && len(l.entries) < l.limit {
			if at.id != "" {
				l.entries = append(l.entries, posthorn.SourceEntry{Stream: stream, Position: head.String(), Err: posthorn.ErrTrimmed})
			}
			at = head
		}
		n := min(len(f.Messages), l.limit-len(l.entries))
		for _, m := range f.Messages[:n] {
			at.id, at.count = m.ID, at.count+1
			l.after[stream] = at.String()
			l.entries = append(l.entries, entry(stream, at.String(), m))
		}
		l.full[stream] = len(f.Messages) == share && n == share
	}
	return nil
}

// entry makes an event of an entry, if it is one.
func entry(stream, position string, m redis.XMessage) posthorn.SourceEntry {
	text := func(name string) string {
		s, _ := m.Values[name].(string)
		return s
	}
	return relay.Entry{
		ID: text(relay.ID), Source: text(relay.SourceName), Type: text(relay.Type), Time: text(relay.Time),
		Subject: text(relay.Subject), Tags: text(relay.Tags), Metadata: text(relay.Metadata), Data: []byte(text(relay.Data)),
	}.Read(stream, position)
}

// heads are the places right before the first entries of those keys that are read
// from their heads: from the beginning, or because entries are gone that came after
// the position. What is trimmed goes from the head: as long as the entry at the
// position is there, so is all after it.
func (l *look) heads(ctx context.Context, node *redis.Client, found []redis.XStream) (map[string]place, error) {
	asked := map[string]*redis.XMessageSliceCmd{}
	heads := map[string]place{}
	pipe := node.Pipeline()
	l.mu.Lock()
	for _, f := range found {
		at := placeOf(l.after[strings.TrimPrefix(f.Stream, l.link.prefix)])
		switch {
		case len(f.Messages) == 0:
		case at.id == "":
			heads[f.Stream] = place{id: before(f.Messages[0].ID)}
		case before(f.Messages[0].ID) != at.id:
			asked[f.Stream] = pipe.XRangeN(ctx, f.Stream, at.id, at.id, 1)
		}
	}
	l.mu.Unlock()
	if len(asked) > 0 {
		_, _ = pipe.Exec(ctx) // each command has its own error
	}
	for _, f := range found {
		cmd := asked[f.Stream]
		if cmd == nil {
			continue
		}
		there, err := cmd.Result()
		if err != nil {
			return nil, explain(err)
		}
		if len(there) == 0 {
			heads[f.Stream] = place{id: before(f.Messages[0].ID)}
		}
	}
	for key, head := range heads {
		info, err := node.XInfoStream(ctx, key).Result()
		if err != nil {
			return nil, explain(err)
		}
		head.count, head.counted = info.EntriesAdded-info.Length, info.EntriesAdded >= info.Length
		heads[key] = head
	}
	return heads, nil
}

// place is a position in a stream.
type place struct {
	id      string // of an entry; "" is the beginning
	count   int64  // of the entries that the stream had been given with it
	counted bool   // otherwise the count is not known
}

func placeOf(position string) place {
	id, count, counted := strings.Cut(position, "/")
	p := place{id: id, counted: counted}
	p.count, _ = strconv.ParseInt(count, 10, 64)
	return p
}

func (p place) String() string {
	if !p.counted {
		return p.id
	}
	return p.id + "/" + strconv.FormatInt(p.count, 10)
}

// from is the id as Redis reads it.
func (p place) from() string { return cmp.Or(p.id, "0-0") }

// before is the position right before an id.
func before(id string) string {
	ms, seq, err := split(id)
	switch {
	case err != nil:
		return id
	case seq > 0:
		return fmt.Sprintf("%d-%d", ms, seq-1)
	case ms > 0:
		return fmt.Sprintf("%d-%d", ms-1, uint64(1<<64-1))
	}
	return id
}

func split(id string) (ms, seq uint64, err error) {
	left, right, _ := strings.Cut(id, "-")
	if ms, err = strconv.ParseUint(left, 10, 64); err != nil {
		return 0, 0, err
	}
	seq, err = strconv.ParseUint(right, 10, 64)
	return ms, seq, err
}
