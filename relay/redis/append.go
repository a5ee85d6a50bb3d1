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
	// A chunk is what one call of the script appends: the server does nothing else
	// meanwhile.
	chunkEvents = 256
	chunkBytes  = 1 << 20
	// An exchange is what is sent before answers are read.
	exchangeBytes  = 8 << 20
	exchangeChunks = 256
	// maxBulk is what Redis takes as one value (proto-max-bulk-len).
	maxBulk = 512 << 20
)

// flow is the part of a batch that goes to one stream.
type flow struct {
	stream, key string
	events      []*posthorn.Event
	refused     map[int64]error // what Redis never takes

	next    int    // events before this one are in Redis
	safe    int    // events before this one are on the replicas as well
	known   bool   // last is what the stream ends with
	last    string // id of the event that is last in Redis, "" for none
	asked   string // the address of the server that the slot moves to
	trouble error  // why this round got nowhere
	err     error  // why the stream goes no further
	own     bool   // err is of this stream, not of the server
}

func (f *flow) done() bool { return f.err != nil || f.safe == len(f.events) }

// failed: the stream goes no further in this call.
func (f *flow) failed(err error) { f.known, f.err = false, err }

// again lets the next round look at the stream anew.
func (f *flow) again(why error) { f.known, f.trouble = false, why }

func unfinished(flows []*flow) []*flow {
	var open []*flow
	for _, f := range flows {
		if !f.done() {
			open = append(open, f)
		}
	}
	return open
}

// flows splits a batch by stream.
func (s *Sink) flows(batch posthorn.SinkBatch) []*flow {
	var flows []*flow
	byStream := map[string]*flow{}
	var f *flow
	for i := range batch.Events {
		e := &batch.Events[i]
		if f == nil || f.stream != e.Stream {
			if f = byStream[e.Stream]; f == nil {
				f = &flow{stream: e.Stream, key: s.link.prefix + e.Stream}
				byStream[e.Stream] = f
				flows = append(flows, f)
			}
		}
		if max(len(e.Payload), len(e.Metadata)) > s.maxEntry {
			if f.refused == nil {
				f.refused = map[int64]error{}
			}
			f.refused[e.ID] = fmt.Errorf("the event has %d bytes, and Redis takes %d", len(e.Payload)+len(e.Metadata), s.maxEntry)
			continue
		}
		f.events = append(f.events, e)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range flows {
		f.last, f.known = s.last[f.key]
		if f.known && f.place(f.last) > 0 {
			f.known = false // all of it was written before, and comes again
		}
	}
	return flows
}

// chunk is a call of the script: events of a flow up to one.
type chunk struct {
	flow *flow
	upto int
	cmd  *redis.Cmd
}

// pass is one look at all open flows of one server.
type pass struct {
	ctx      context.Context
	node     *redis.Client
	source   string
	replicas int
	timeout  time.Duration
	loaded   bool // the script, in this pass
}

// run asks where streams end of which that is not known, and then appends.
func (p *pass) run(flows []*flow) {
	var probes []chunk
	for _, f := range flows {
		f.trouble = nil
		if !f.known {
			probes = append(probes, chunk{flow: f, cmd: p.call(f, "?", nil)})
		}
	}
	for len(probes) > 0 && over(p.ctx) == nil {
		n := min(len(probes), exchangeChunks)
		p.exchange(probes[:n])
		probes = probes[n:]
	}
	var pending []chunk
	size := 0
	for _, f := range flows {
		if f.done() || !f.known || f.trouble != nil {
			continue
		}
		last := f.last
		for at := f.next; at < len(f.events); {
			upto, bytes := f.cut(at)
			if len(pending) == exchangeChunks || size > 0 && size+bytes > exchangeBytes {
				p.exchange(pending)
				pending, size = nil, 0
				if f.trouble != nil || f.err != nil || over(p.ctx) != nil {
					break
				}
			}
			pending = append(pending, chunk{flow: f, upto: upto, cmd: p.call(f, last, f.events[at:upto])})
			size += bytes
			last = idOf(f.events[upto-1])
			at = upto
		}
		if over(p.ctx) != nil {
			return
		}
	}
	if len(pending) > 0 {
		p.exchange(pending)
	}
}

// cut says where a chunk ends that begins with an event, and how much it has.
func (f *flow) cut(at int) (upto, bytes int) {
	for upto = at; upto < len(f.events) && upto-at < chunkEvents; upto++ {
		e := f.events[upto]
		n := len(e.Payload) + len(e.Metadata) + 100
		if upto > at && bytes+n > chunkBytes {
			break
		}
		bytes += n
	}
	return upto, bytes
}

// call is a call of the script.
func (p *pass) call(f *flow, prev string, events []*posthorn.Event) *redis.Cmd {
	args := make([]any, 0, 6+7*len(events))
	args = append(args, "evalsha", appending.Hash(), 1, f.key, prev, p.source)
	for _, e := range events {
		args = appendEvent(args, e)
	}
	return redis.NewCmd(p.ctx, args...)
}

// appendEvent adds what [relay.NewEntry] says of an event. They are pointers, which
// need no memory and become text when they are sent: meanwhile Redis is at work.
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

// document is sent as it is.
type document json.RawMessage

func (d *document) MarshalBinary() ([]byte, error) { return *d, nil }

// exchange sends calls on one connection, and looks at the answers. Replicas are
// waited for on the same connection, which WAIT is about.
func (p *pass) exchange(chunks []chunk) {
	var wait *redis.IntCmd
	_, _ = p.node.Pipelined(p.ctx, func(pipe redis.Pipeliner) error { // each command has its own error
		for _, c := range chunks {
			if c.flow.asked != "" {
				_ = pipe.Do(p.ctx, "asking")
			}
			_ = pipe.Process(p.ctx, c.cmd)
		}
		if p.replicas > 0 {
			wait = redis.NewIntCmd(p.ctx, "wait", p.replicas, (p.timeout / 2).Milliseconds())
			_ = pipe.Process(p.ctx, wait)
		}
		return nil
	})
	for _, c := range chunks {
		p.answer(c)
	}
	err := p.replicated(wait)
	for _, c := range chunks {
		f := c.flow
		switch {
		case f.err != nil || f.trouble != nil || !f.known:
		case err != nil:
			f.failed(err)
		default:
			f.safe = f.next
		}
	}
}

// replicated says why too few replicas have what was written.
func (p *pass) replicated(wait *redis.IntCmd) error {
	if wait == nil {
		return nil
	}
	n, err := wait.Result()
	if err == nil && int(n) < p.replicas {
		err = &failure{
			text: fmt.Sprintf("%d replicas have it, and %d should", n, p.replicas),
			hint: "The replicas are away or behind. See INFO replication on the master; ?replicas=0 does without.",
		}
	}
	return explain(err)
}

// answer is what the script said to a chunk. After a chunk that was refused, those
// after it were as well.
func (p *pass) answer(c chunk) {
	f := c.flow
	if f.err != nil || f.trouble != nil {
		return
	}
	answer, err := c.cmd.Result()
	if err != nil {
		p.refusal(f, err)
		return
	}
	switch answer := answer.(type) {
	case int64:
		f.next, f.last = c.upto, idOf(f.events[c.upto-1])
	case string:
		if c.upto > 0 {
			f.again(errBetween)
			return
		}
		f.known, f.last, f.next = true, answer, f.place(answer)
		f.safe = min(f.safe, f.next)
	default:
		f.failed(fmt.Errorf("redis answered with a %T", answer))
	}
}

// place is how many events there are up to the one with an id, or 0.
func (f *flow) place(id string) int {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil {
		return 0
	}
	return 1 + slices.IndexFunc(f.events, func(e *posthorn.Event) bool { return e.ID == n })
}

func idOf(e *posthorn.Event) string { return strconv.FormatInt(e.ID, 10) }

var errBetween = errors.New("somebody else wrote to the stream: another relay, or one that lost its lease")

// refusal sorts errors into those that the next round may mend, and others.
func (p *pass) refusal(f *flow, err error) {
	switch code := errorCode(err); code {
	case "NOSCRIPT":
		f.trouble = err
		if !p.loaded {
			p.loaded = true
			if err := appending.Load(p.ctx, p.node).Err(); err != nil {
				f.failed(explain(err))
			}
		}
	case "MOVED":
		f.asked = ""
		f.again(err)
	case "ASK":
		f.asked = err.Error()[strings.LastIndexByte(err.Error(), ' ')+1:]
		f.again(err)
	case "OTHERLOG":
		f.own = true
		_, other, _ := strings.Cut(err.Error(), " ")
		f.failed(&failure{
			text: fmt.Sprintf("the stream's key %q has events of another log, %s", f.key, other),
			hint: "Ids of two logs do not compare. Give one of the relays a prefix: redis://host?prefix=shop:",
		})
	case "WRONGTYPE":
		f.own = true
		f.failed(fmt.Errorf("key %q: %w", f.key, explain(err)))
	default:
		f.failed(explain(err))
	}
}
