package redis

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/relay"
)

//go:embed append.lua
var appendScript string

var appending = redis.NewScript(appendScript)

const (
	// A chunk is the events of one call of the script. Its size is limited, since the
	// server executes no other command during a script.
	chunkEvents = 256
	chunkBytes  = 1 << 20
	// An exchange is the chunks that are sent before their replies are read.
	exchangeBytes  = 8 << 20
	exchangeChunks = 256
	// maxBulk is the largest value that Redis accepts (proto-max-bulk-len).
	maxBulk = 512 << 20
)

// streamBatch is the part of a batch that goes to one stream, and its progress.
type streamBatch struct {
	stream, key string
	events      []*posthorn.Event
	refused     map[int64]error // events that Redis will never accept

	written    int    // number of events that Redis has
	replicated int    // number of events that enough replicas have
	known      bool   // whether last is up to date
	last       string // id of the last event in the stream, "" if it has none
	before     int64  // the highest id that the stream had when this lead came to it; 0: not known
	tail       *tail  // the search for events that the stream has already; nil if there is none
	movingTo   string // address of the server that the slot is migrating to
	retryCause error  // why the next round must retry
	err        error  // why this call writes no more to the stream
	streamErr  bool   // err is an error of the stream, not of the server
}

func (b *streamBatch) done() bool { return b.err != nil || b.replicated == len(b.events) }

// refuse leaves an event out for good.
func (b *streamBatch) refuse(id int64, err error) {
	if b.refused == nil {
		b.refused = map[int64]error{}
	}
	b.refused[id] = err
}

// fail stops writing to the stream for the rest of this call.
func (b *streamBatch) fail(err error) { b.known, b.before, b.err = false, 0, err }

// retry lets the next round read the last id of the stream and continue from there.
func (b *streamBatch) retry(cause error) { b.known, b.before, b.retryCause = false, 0, cause }

// open reports whether this round may go on with the stream.
func (b *streamBatch) open() bool { return b.err == nil && b.retryCause == nil && b.known }

func unfinished(batches []*streamBatch) []*streamBatch {
	var open []*streamBatch
	for _, b := range batches {
		if !b.done() {
			open = append(open, b)
		}
	}
	return open
}

// split splits a batch by stream.
func (s *Sink) split(batch posthorn.SinkBatch) []*streamBatch {
	var batches []*streamBatch
	byStream := map[string]*streamBatch{}
	var b *streamBatch
	for i := range batch.Events {
		e := &batch.Events[i]
		if b == nil || b.stream != e.Stream {
			if b = byStream[e.Stream]; b == nil {
				b = &streamBatch{stream: e.Stream, key: s.link.prefix + e.Stream}
				byStream[e.Stream] = b
				batches = append(batches, b)
			}
		}
		if max(len(e.Payload), len(e.Metadata)) > s.maxEntry {
			b.refuse(e.ID, fmt.Errorf("the event has %d bytes, and Redis accepts %d", len(e.Payload)+len(e.Metadata), s.maxEntry))
			continue
		}
		b.events = append(b.events, e)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range batches {
		end, found := s.ends[b.key]
		if !found || end.lead != batch.Lead {
			continue
		}
		b.last, b.before = end.last, end.before
		// The stream is read again if the batch repeats an event that this sink has written,
		// or has an id that another event may have.
		b.known = b.countUpTo(b.last) == 0 && relay.LowestID(b.events) > b.before
	}
	return batches
}

// chunk is a command for one stream: a call of the script, or the reading of a page.
type chunk struct {
	batch *streamBatch
	upto  int // index after the last event of the chunk; 0 if the chunk only reads
	cmd   redis.Cmder
}

// nodeWriter writes batches to one server, in one round.
type nodeWriter struct {
	ctx      context.Context
	node     *redis.Client
	source   string
	replicas int
	timeout  time.Duration
	loaded   bool // whether this round has loaded the script
	lastID   func(context.Context) (int64, error)
	register func(context.Context, []*streamBatch) error
}

// write reads the ends of streams that are not known, registers the streams, and then
// appends.
func (w *nodeWriter) write(batches []*streamBatch) {
	var probes []chunk
	for _, b := range batches {
		b.retryCause = nil
		if !b.known {
			probes = append(probes, chunk{batch: b, cmd: w.call(b, "?", nil)})
		}
	}
	w.exchangeAll(probes, exchangeChunks)
	w.compare(batches)
	if err := w.register(w.ctx, batches); err != nil {
		for _, b := range batches {
			b.fail(err)
		}
		return
	}
	var pending []chunk
	size := 0
	for _, b := range batches {
		if b.done() || !b.open() {
			continue
		}
		last := b.last
		for at := b.written; at < len(b.events); {
			upto, bytes := b.cut(at)
			if len(pending) == exchangeChunks || size > 0 && size+bytes > exchangeBytes {
				w.exchange(pending)
				pending, size = nil, 0
				if !b.open() || contextErr(w.ctx) != nil {
					break
				}
			}
			pending = append(pending, chunk{batch: b, upto: upto, cmd: w.call(b, last, b.events[at:upto])})
			size += bytes
			last = idOf(b.events[upto-1])
			at = upto
		}
		if contextErr(w.ctx) != nil {
			return
		}
	}
	if len(pending) > 0 {
		w.exchange(pending)
	}
}

// cut returns the end of the chunk that begins at an index, and its size.
func (b *streamBatch) cut(at int) (upto, bytes int) {
	for upto = at; upto < len(b.events) && upto-at < chunkEvents; upto++ {
		e := b.events[upto]
		n := len(e.Payload) + len(e.Metadata) + 100
		if upto > at && bytes+n > chunkBytes {
			break
		}
		bytes += n
	}
	return upto, bytes
}

// call returns the command that runs the script.
func (w *nodeWriter) call(b *streamBatch, prev string, events []*posthorn.Event) *redis.Cmd {
	args := make([]any, 0, 6+7*len(events))
	args = append(args, "evalsha", appending.Hash(), 1, b.key, prev, w.source)
	for _, e := range events {
		args = appendEvent(args, e)
	}
	return redis.NewCmd(w.ctx, args...)
}

// appendEvent appends the arguments of an event, in the form of [relay.NewEntry]. The
// arguments are pointers into the event. They need no allocation, and are formatted
// when they are sent, while Redis executes the commands before.
func appendEvent(args []any, e *posthorn.Event) []any {
	at := &e.PublishedAt
	if at.Location() != time.UTC {
		utc := at.UTC()
		at = &utc
	}
	var tags, metadata any = "", ""
	if len(e.Tags) > 0 {
		tags = relay.NewEntry("", e).Tags
	}
	if string(e.Metadata) != "{}" {
		metadata = (*document)(&e.Metadata)
	}
	return append(args, &e.ID, &e.Type, at, &e.Key, tags, metadata, (*document)(&e.Payload))
}

// document is JSON that is sent as it is.
type document json.RawMessage

func (d *document) MarshalBinary() ([]byte, error) { return *d, nil }

// exchangeAll exchanges chunks, some at a time.
func (w *nodeWriter) exchangeAll(chunks []chunk, some int) {
	for len(chunks) > 0 && contextErr(w.ctx) == nil {
		n := min(len(chunks), some)
		w.exchange(chunks[:n])
		chunks = chunks[n:]
	}
}

// exchange sends chunks on one connection, waits for the replicas if the chunks write,
// and applies the replies. WAIT must use the same connection, since it waits for the
// replication of the writes of its connection.
func (w *nodeWriter) exchange(chunks []chunk) {
	var wait *redis.IntCmd
	writes := slices.ContainsFunc(chunks, func(c chunk) bool { return c.upto > 0 })
	_, _ = w.node.Pipelined(w.ctx, func(pipe redis.Pipeliner) error { // each command has its own error
		for _, c := range chunks {
			if c.batch.movingTo != "" {
				_ = pipe.Do(w.ctx, "asking")
			}
			_ = pipe.Process(w.ctx, c.cmd)
		}
		if writes && w.replicas > 0 {
			wait = redis.NewIntCmd(w.ctx, "wait", w.replicas, (w.timeout / 2).Milliseconds())
			_ = pipe.Process(w.ctx, wait)
		}
		return nil
	})
	for _, c := range chunks {
		w.apply(c)
	}
	err := w.replicationErr(wait)
	for _, c := range chunks {
		b := c.batch
		switch {
		case c.upto == 0 || !b.open():
		case err != nil:
			b.fail(err)
		default:
			b.replicated = b.written
		}
	}
}

// replicationErr returns an error if too few replicas have acknowledged the writes.
func (w *nodeWriter) replicationErr(wait *redis.IntCmd) error {
	if wait == nil {
		return nil
	}
	n, err := wait.Result()
	if err == nil && int(n) < w.replicas {
		err = &failure{
			text: fmt.Sprintf("%d replicas have the entries, and %d are required", n, w.replicas),
			hint: "Replicas are down or behind. See INFO replication on the master. ?replicas=0 writes without waiting for replicas.",
		}
	}
	return explain(err)
}

// apply updates the progress of a stream by the reply to a chunk. If a chunk was
// refused, so were all chunks of the stream after it, and apply ignores them.
func (w *nodeWriter) apply(c chunk) {
	b := c.batch
	if b.err != nil || b.retryCause != nil {
		return
	}
	if err := c.cmd.Err(); err != nil {
		w.applyError(b, err)
		return
	}
	if page, ok := c.cmd.(*redis.XMessageSliceCmd); ok {
		b.tail.read(w.source, page.Val())
		return
	}
	switch reply := c.cmd.(*redis.Cmd).Val().(type) {
	case int64:
		b.written = c.upto
		if reply > 0 {
			b.last = idOf(b.events[c.upto-1])
		}
	case string:
		if c.upto > 0 {
			b.retry(errOtherWriter)
			return
		}
		w.located(b, reply)
	default:
		b.fail(fmt.Errorf("unexpected reply of type %T from redis", reply))
	}
}

// located applies the id of the last event of a stream.
func (w *nodeWriter) located(b *streamBatch, id string) {
	b.known, b.last, b.written, b.replicated = true, id, 0, 0
	if b.countUpTo(id) == 0 {
		if err := relay.CheckLast(w.ctx, w.lastID, id, b.events); err != nil {
			b.streamErr = true
			b.fail(fmt.Errorf("key %q: %w", b.key, err))
			return
		}
	}
	if id != "" && len(b.events) > 0 {
		b.tail = newTail(b.events, id, b.before)
	}
}

// countUpTo returns the number of events up to and including the event with the id,
// or 0 if the batch does not have that event.
func (b *streamBatch) countUpTo(id string) int {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return 0
	}
	return 1 + slices.IndexFunc(b.events, func(e *posthorn.Event) bool { return e.ID == n })
}

func idOf(e *posthorn.Event) string { return strconv.FormatInt(e.ID, 10) }

var errOtherWriter = errors.New("another relay writes to the stream, or a relay that has lost its lease")

// applyError retries errors that the next round can solve. All others fail the stream.
func (w *nodeWriter) applyError(b *streamBatch, err error) {
	switch code := errorCode(err); code {
	case "NOSCRIPT":
		b.retry(err)
		if !w.loaded {
			w.loaded = true
			if err := appending.Load(w.ctx, w.node).Err(); err != nil {
				b.fail(explain(err))
			}
		}
	case "MOVED":
		b.movingTo = ""
		b.retry(err)
	case "ASK":
		b.movingTo = err.Error()[strings.LastIndexByte(err.Error(), ' ')+1:]
		b.retry(err)
	case "OTHERLOG":
		b.streamErr = true
		_, other, _ := strings.Cut(err.Error(), " ")
		b.fail(&failure{
			text: fmt.Sprintf("the key %q of the stream has events of another log, %s", b.key, other),
			hint: "The ids of two logs are not comparable. Use a prefix for one of the relays: redis://host?prefix=shop:",
		})
	case "WRONGTYPE":
		b.streamErr = true
		b.fail(fmt.Errorf("key %q: %w", b.key, explain(err)))
	default:
		b.fail(explain(err))
	}
}
