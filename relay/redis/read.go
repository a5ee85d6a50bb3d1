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
	// readStreams is the maximum number of streams that one command reads.
	readStreams = 100
	// blockFor is the maximum time that a command blocks. It is short, since the
	// connection stays busy for that time after the reader is cancelled.
	blockFor = time.Second
	// In a Cluster one command can read from one slot only, so it cannot block on
	// several streams. They are polled instead, with a pause that doubles.
	minPause = 2 * time.Millisecond
	maxPause = 100 * time.Millisecond
)

// read polls until there are entries, or the wait is over. It does not change positions.
func (s *Source) read(ctx context.Context, positions map[string]string, limit int, wait time.Duration) ([]posthorn.SourceEntry, error) {
	if err := s.link.open(ctx); err != nil {
		return nil, err
	}
	deadline := time.Now().Add(wait)
	pause := minPause
	for first := true; ; first = false {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p := &poll{link: s.link, after: maps.Clone(positions), limit: limit}
		if err := s.link.check(ctx, p.plan(ctx)); err != nil {
			return nil, err
		}
		left := time.Until(deadline)
		if len(p.commands) == 1 && !first && left > 0 {
			p.block = min(left, blockFor)
		}
		if err := s.link.check(ctx, p.run(ctx)); err != nil {
			return nil, err
		}
		if len(p.entries) > 0 || left <= 0 {
			return p.entries, nil
		}
		if len(p.commands) != 1 {
			select {
			case <-time.After(min(pause, left)):
			case <-ctx.Done():
			}
			pause = min(2*pause, maxPause)
		}
	}
}

// poll is one attempt to read new entries of several streams.
type poll struct {
	link     *link
	after    map[string]string // positions, which advance
	limit    int
	block    time.Duration
	commands []command

	mu      sync.Mutex // guards after, entries and hasMore
	entries []posthorn.SourceEntry
	hasMore map[string]bool // streams that may have more entries
}

// command is the streams that one XREAD can read.
type command struct {
	node    *redis.Client
	streams []string
}

// plan groups the streams by server and slot. Their order is random, as that of the
// map, so that no stream is always the last.
func (p *poll) plan(ctx context.Context) error {
	type location struct {
		node *redis.Client
		slot uint16
	}
	byLocation := map[location][]string{}
	for stream := range p.after {
		key := p.link.prefix + stream
		node, err := p.link.node(ctx, key)
		if err != nil {
			return err
		}
		at := location{node: node}
		if p.link.kind == cluster {
			at.slot = slot(key)
		}
		byLocation[at] = append(byLocation[at], stream)
	}
	for at, streams := range byLocation {
		for some := range slices.Chunk(streams, readStreams) {
			p.commands = append(p.commands, command{node: at.node, streams: some})
		}
	}
	return nil
}

// run reads until the limit is reached, or no stream has more entries. Each round
// reads the same number of entries from each stream, so that a long stream does not
// starve the others.
func (p *poll) run(ctx context.Context) error {
	commands := p.commands
	for len(commands) > 0 && len(p.entries) < p.limit {
		n := 0
		for _, c := range commands {
			n += len(c.streams)
		}
		p.hasMore = map[string]bool{}
		share := (p.limit - len(p.entries) + n - 1) / n
		if err := p.readAll(ctx, commands, share); err != nil {
			return err
		}
		var next []command
		for _, c := range commands {
			c.streams = slices.DeleteFunc(slices.Clone(c.streams), func(stream string) bool { return !p.hasMore[stream] })
			if len(c.streams) > 0 {
				next = append(next, c)
			}
		}
		commands = next
	}
	return nil
}

// readAll reads from all servers concurrently.
func (p *poll) readAll(ctx context.Context, commands []command, share int) error {
	byNode := map[*redis.Client][]command{}
	for _, c := range commands {
		byNode[c.node] = append(byNode[c.node], c)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var failed error
	for node, commands := range byNode {
		all.Go(func() {
			if err := p.readNode(ctx, node, commands, share); err != nil {
				mu.Lock()
				failed = cmp.Or(failed, err)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return failed
}

// readNode reads from one server, in one round trip.
func (p *poll) readNode(ctx context.Context, node *redis.Client, commands []command, share int) error {
	if p.block > 0 {
		found, err := node.XRead(ctx, p.args(commands[0], share, p.block)).Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return explain(err)
		}
		return p.add(ctx, node, found, share)
	}
	pipe := node.Pipeline()
	reads := make([]*redis.XStreamSliceCmd, len(commands))
	for i, c := range commands {
		reads[i] = pipe.XRead(ctx, p.args(c, share, -1))
	}
	_, _ = pipe.Exec(ctx) // each command has its own error
	for _, read := range reads {
		found, err := read.Result()
		if err != nil && !errors.Is(err, redis.Nil) {
			return explain(err)
		}
		if err := p.add(ctx, node, found, share); err != nil {
			return err
		}
	}
	return nil
}

func (p *poll) args(c command, share int, block time.Duration) *redis.XReadArgs {
	p.mu.Lock()
	defer p.mu.Unlock()
	args := &redis.XReadArgs{Count: int64(share), Block: block}
	for _, stream := range c.streams {
		args.Streams = append(args.Streams, p.link.prefix+stream)
	}
	for _, stream := range c.streams {
		args.Streams = append(args.Streams, parsePosition(p.after[stream]).from())
	}
	return args
}

// add appends the entries of a reply, up to the limit, and advances the positions.
func (p *poll) add(ctx context.Context, node *redis.Client, found []redis.XStream, share int) error {
	heads, err := p.heads(ctx, node, found)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range found {
		stream := strings.TrimPrefix(f.Stream, p.link.prefix)
		at := parsePosition(p.after[stream])
		if head, ok := heads[f.Stream]; ok && len(p.entries) < p.limit {
			if at.id != "" && head.loss != nil {
				p.entries = append(p.entries, posthorn.SourceEntry{Stream: stream, Position: head.String(), Err: head.loss})
			}
			at = head.position
		}
		n := min(len(f.Messages), p.limit-len(p.entries))
		for _, m := range f.Messages[:n] {
			at.id, at.count = m.ID, at.count+1
			p.after[stream] = at.String()
			p.entries = append(p.entries, decode(stream, at.String(), m))
		}
		p.hasMore[stream] = len(f.Messages) == share && n == share
	}
	return nil
}

// decode decodes an entry into an event. The result has an error if another program
// wrote the entry.
func decode(stream, position string, m redis.XMessage) posthorn.SourceEntry {
	text := func(name string) string {
		s, _ := m.Values[name].(string)
		return s
	}
	return relay.Entry{
		ID: text(relay.ID), Source: text(relay.SourceName), Type: text(relay.Type), Time: text(relay.Time),
		Subject: text(relay.Subject), Tags: text(relay.Tags), Metadata: text(relay.Metadata), Data: []byte(text(relay.Data)),
	}.Read(stream, position)
}

// streamHead is the position right before the first entry of a stream.
type streamHead struct {
	position
	loss error // why entries after the reader's position are missing, if they are
}

var errNewStream = errors.New("redis has lost the stream and begun it anew: entries that it had and that were not read are lost, if there were any")

// heads returns the head of each key that is read from there: either from the
// beginning, or because the entry at the position is gone. It was trimmed, or the
// stream is a new one of a server that came back without data. Redis trims a stream
// from its head. So if the entry at the position still exists, nothing after it was
// trimmed.
func (p *poll) heads(ctx context.Context, node *redis.Client, found []redis.XStream) (map[string]streamHead, error) {
	lookups := map[string]*redis.XMessageSliceCmd{}
	heads := map[string]streamHead{}
	read := map[string]position{}
	pipe := node.Pipeline()
	p.mu.Lock()
	for _, f := range found {
		at := parsePosition(p.after[strings.TrimPrefix(f.Stream, p.link.prefix)])
		read[f.Stream] = at
		switch {
		case len(f.Messages) == 0:
		case at.id == "":
			heads[f.Stream] = streamHead{position: position{id: before(f.Messages[0].ID)}}
		case before(f.Messages[0].ID) != at.id:
			lookups[f.Stream] = pipe.XRangeN(ctx, f.Stream, at.id, at.id, 1)
		}
	}
	p.mu.Unlock()
	if len(lookups) > 0 {
		_, _ = pipe.Exec(ctx) // each command has its own error
	}
	for _, f := range found {
		lookup := lookups[f.Stream]
		if lookup == nil {
			continue
		}
		entries, err := lookup.Result()
		if err != nil {
			return nil, explain(err)
		}
		if len(entries) == 0 {
			heads[f.Stream] = streamHead{position: position{id: before(f.Messages[0].ID)}}
		}
	}
	for key := range heads {
		info, err := node.XInfoStream(ctx, key).Result()
		if err != nil {
			return nil, explain(err)
		}
		head := heads[key]
		if at := read[key]; at.id != "" && !less(at.id, info.FirstEntry.ID) {
			delete(heads, key) // only the entry at the position was deleted
			continue
		}
		head.count, head.counted = info.EntriesAdded-info.Length, info.EntriesAdded >= info.Length
		head.loss = head.lossAfter(read[key])
		heads[key] = head
	}
	return heads, nil
}

// lossAfter returns how the entry at a position went, if others may have gone with it.
func (h streamHead) lossAfter(at position) error {
	switch {
	case !h.counted || !at.counted || h.count > at.count:
		return posthorn.ErrTrimmed
	case h.count < at.count: // the new stream has added fewer entries than were read from the old one
		return errNewStream
	}
	return nil
}

// position is a position in a stream.
type position struct {
	id      string // of the last entry that was read; "" is the beginning
	count   int64  // entries that were ever added to the stream, up to id
	counted bool   // whether count is known
}

func parsePosition(text string) position {
	id, count, counted := strings.Cut(text, "/")
	p := position{id: id, counted: counted}
	p.count, _ = strconv.ParseInt(count, 10, 64)
	return p
}

func (p position) String() string {
	if !p.counted {
		return p.id
	}
	return p.id + "/" + strconv.FormatInt(p.count, 10)
}

// from returns the id as an argument of XREAD.
func (p position) from() string { return cmp.Or(p.id, "0-0") }

// before returns the largest possible id before an id.
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
