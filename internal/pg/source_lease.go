package pg

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

// SourceLease is what a worker holds of a stream that is read from a broker. It
// is settled from its head on, and tells how far that has come.
type SourceLease struct {
	Group   int64
	Stream  string
	Fence   string
	From    string        // where the stream stood
	Entries []SourceEntry // in its order

	mu       sync.Mutex
	settled  int  // entries at the head
	failures int  // that became retries or dead letters
	unsure   bool // of whether what was said last was heard
}

// SourceEntry is one entry of a stream.
type SourceEntry struct {
	Position string // to read on from when it is done
	Event    Event
	Fate     Fate
}

// Fate is what is to become of an entry.
type Fate int

const (
	// Handle is for those that are among the lease's events.
	Handle Fate = iota
	// Skip is for those that are no event, or were handled before.
	Skip
	// Defer is for those that have to wait for others of their key: they become
	// retries, behind those.
	Defer
)

// Progress reports how many entries are settled, and how many of their events
// failed or were deferred. It is not sure when the last settlement failed, or
// its answer was lost.
func (l *SourceLease) Progress() (settled, failures int, sure bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.settled, l.failures, !l.unsure
}

// settle moves the stream past the entries up to an event, or all if that is 0.
func (l *SourceLease) settle(ctx context.Context, db DB, upTo int64, failures []Failure) error {
	s, err := l.step(upTo, failures)
	if err != nil || s == nil {
		return translate("settle", err)
	}
	if err := run(ctx, db, "settle", settleSourceSQL, s.arguments...); err != nil {
		return err
	}
	s.done()
	return nil
}

// queue is settle as part of a batch.
func (l *SourceLease) queue(batch *pgx.Batch, upTo int64, failures []Failure) (settled func(), err error) {
	s, err := l.step(upTo, failures)
	if err != nil {
		return nil, err
	}
	if s == nil { // nothing moves, and still it must not be somebody else's
		batch.Queue("select posthorn.check_stream($1::bigint, $2::text, $3::uuid)", l.Group, l.Stream, l.Fence)
		return func() {}, nil
	}
	batch.Queue(settleSourceSQL, s.arguments...)
	return s.done, nil
}

const settleSourceSQL = `select posthorn.settle_source($1::bigint, $2::text, $3::uuid, $4::text, $5::text, $6::bigint[],
	$7::jsonb, $8::text::json, $9::text[]::json[])`

// step is one call of settle_source.
type step struct {
	arguments []any
	done      func()
}

// step finds what there is to say; nothing, if no entry is done.
func (l *SourceLease) step(upTo int64, failures []Failure) (*step, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	end, failures, err := l.end(upTo, failures)
	if err != nil || end == l.settled {
		return nil, err
	}
	part := l.Entries[l.settled:end]
	from := l.From
	if l.settled > 0 {
		from = l.Entries[l.settled-1].Position
	}
	var failed failedEvents
	var ids []int64
	for i := range part {
		e := &part[i]
		if e.Fate == Skip {
			continue
		}
		ids = append(ids, e.Event.ID)
		if e.Fate == Defer {
			failures = append(failures, Failure{Event: e.Event.ID, Released: true})
		}
		if slices.ContainsFunc(failures, func(f Failure) bool { return f.Event == e.Event.ID }) {
			failed.add(&e.Event)
		}
	}
	document, err := failuresDocument(failures)
	if err != nil {
		return nil, err
	}
	events, err := failed.document()
	if err != nil {
		return nil, err
	}
	l.unsure = true
	return &step{
		arguments: []any{
			l.Group, l.Stream, l.Fence, from, part[len(part)-1].Position, append([]int64{}, ids...), document, events,
			append([]string{}, failed.payloads...),
		},
		done: func() {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.settled, l.unsure = end, false
			l.failures += len(failures)
		},
	}, nil
}

// end is where the entries end that are done or have failed. Events at the tail
// that were given back whole stay where they are: the stream ends before them.
func (l *SourceLease) end(upTo int64, failures []Failure) (int, []Failure, error) {
	end := len(l.Entries)
	if upTo != 0 {
		at := slices.IndexFunc(l.Entries, func(e SourceEntry) bool { return e.Fate == Handle && e.Event.ID == upTo })
		if at < 0 {
			return 0, nil, fmt.Errorf("event %d is not in the lease", upTo)
		}
		for end = at + 1; end < len(l.Entries) && l.Entries[end].Fate == Skip; {
			end++
		}
	}
	back := map[int64]bool{}
	for _, f := range failures {
		if f.Released && f.RetryIn == nil && f.Subscription == "" {
			back[f.Event] = true
		}
	}
	for i := end - 1; i >= l.settled && (l.Entries[i].Fate != Handle || back[l.Entries[i].Event.ID]); i-- {
		if l.Entries[i].Fate == Handle {
			end = i
		}
	}
	inside := map[int64]bool{}
	for _, e := range l.Entries[l.settled:max(end, l.settled)] {
		inside[e.Event.ID] = e.Fate == Handle || inside[e.Event.ID]
	}
	return max(end, l.settled), slices.DeleteFunc(slices.Clone(failures), func(f Failure) bool { return !inside[f.Event] }), nil
}

// check reports whether the stream is still ours.
func (l *SourceLease) check(ctx context.Context, db DB) error {
	return run(ctx, db, "extend", "select posthorn.check_stream($1::bigint, $2::text, $3::uuid)", l.Group, l.Stream, l.Fence)
}

// GiveUp lets others have the stream. What is settled under the lease from then
// on is refused.
func (l *SourceLease) GiveUp(ctx context.Context, db DB) error {
	return ReleaseSourceStreams(ctx, db, l.Group, []string{l.Stream}, []string{l.Fence})
}

// failedEvents are events as fail_in_source reads them.
type failedEvents struct {
	events   []failedEvent
	payloads []string
}

type failedEvent struct {
	ID          int64           `json:"id"`
	Type        string          `json:"type"`
	Key         string          `json:"key,omitempty"`
	Tags        []string        `json:"tags,omitempty"`
	Metadata    json.RawMessage `json:"metadata"`
	PublishedAt time.Time       `json:"published_at"`
	Delivery    int             `json:"delivery"`
}

func (f *failedEvents) add(e *Event) {
	tags := make([]string, len(e.Tags))
	for i, tag := range e.Tags {
		tags[i] = storable(tag)
	}
	f.events = append(f.events, failedEvent{
		e.ID, storable(e.Type), storable(e.Key), tags, e.Metadata, e.PublishedAt, max(e.Delivery, 1),
	})
	f.payloads = append(f.payloads, string(e.Payload))
}

func (f *failedEvents) document() (string, error) {
	if len(f.events) == 0 {
		return "[]", nil
	}
	document, err := json.Marshal(f.events)
	return string(document), err
}
