// Package sealing seals what goes to confidential streams, and opens what comes
// from them: package seal with the policies and keys of the database.
//
// It owns what a process remembers of policies. It does not own the format, nor who
// may read: that is seal's, and the server's.
package sealing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/seal"
)

// ErrSealed: a payload is sealed, and does not open here.
var ErrSealed = errors.New("the payload stays sealed")

var errNotJSON = errors.New("what was sealed is no JSON")

// Box seals and opens. It is safe for use by any number of goroutines.
type Box struct {
	db     pg.DB
	sealer *seal.Sealer // nil where there is no keeper
	origin *Origin      // has the keys of imported events; may be nil
	log    *slog.Logger

	mu         sync.Mutex
	policies   map[string]*policies  // by namespace
	keyed      map[seal.Stream]keyed // what is known of streams that something sealed came from
	complained map[string]time.Time  // by stream
}

// What is remembered, and for how long. A policy that is newer than what is
// remembered is learnt from the database's refusal.
const (
	policyAge       = 5 * time.Second
	mostNamespaces  = 1000
	mostStreams     = 10_000
	complaintPeriod = time.Minute
)

// New returns a box. Without a sealer it seals and opens nothing, and says so.
func New(db pg.DB, sealer *seal.Sealer, log *slog.Logger) *Box {
	return &Box{
		db: db, sealer: sealer, log: log,
		policies: map[string]*policies{}, keyed: map[seal.Stream]keyed{}, complained: map[string]time.Time{},
	}
}

// SetOrigin says where the keys of imported events are, before the box is used.
func (b *Box) SetOrigin(origin *Origin) { b.origin = origin }

// Seal returns the messages with the payloads sealed of those that go to
// confidential streams. What is sealed already stays as it is. The messages that
// were given are not changed.
func (b *Box) Seal(ctx context.Context, namespace string, messages []pg.Message) ([]pg.Message, error) {
	if b.sealer == nil {
		return messages, nil
	}
	names := named(messages)
	if len(names) == 0 {
		return messages, nil
	}
	confidential, err := b.confidential(ctx, namespace, names)
	if err != nil || len(confidential) == 0 {
		return messages, err
	}
	sealed := make([]pg.Message, len(messages))
	copy(sealed, messages)
	for i := range sealed {
		m := &sealed[i]
		if _, ok := confidential[m.Stream]; !ok || seal.IsSealed(m.Payload) {
			continue
		}
		payload := m.Payload
		if len(payload) == 0 {
			payload = json.RawMessage("{}")
		}
		if m.Payload, err = b.sealer.Seal(ctx, seal.Stream{Namespace: namespace, Name: m.Stream}, payload); err != nil {
			return nil, hinted(err)
		}
	}
	return sealed, nil
}

// named are the streams of messages, without the default one, which cannot be
// confidential.
func named(messages []pg.Message) []string {
	var names []string
	for i := range messages {
		name := messages[i].Stream
		if name != "" && name != "default" && (len(names) == 0 || names[len(names)-1] != name) {
			names = append(names, name)
		}
	}
	return names
}

// Stale reports whether the database has refused messages for what this process
// remembered, and forgets that: sealed anew, they may be taken.
func (b *Box) Stale(namespace string, messages []pg.Message, err error) bool {
	switch {
	case err == nil || b.sealer == nil:
		return false
	case pg.IsPlaintext(err):
		b.mu.Lock()
		delete(b.policies, namespace)
		b.mu.Unlock()
		return true
	case pg.IsWrongKey(err):
		for _, name := range named(messages) {
			b.sealer.Forget(seal.Stream{Namespace: namespace, Name: name})
		}
		return true
	}
	return false
}

// Open opens the payload of an event, if it is sealed. A payload that only looks
// so, in a stream that never had a key, stays as it is. The error is [ErrSealed],
// and the event then as it was.
func (b *Box) Open(ctx context.Context, namespace string, e *pg.Event) error {
	payload, opened, err := b.OpenPayload(ctx, namespace, e.Stream, e.Metadata, e.Payload)
	if opened {
		e.Payload, e.Confidential = payload, true
	}
	return err
}

// OpenPayload opens a payload of a stream, if it is sealed. The metadata of an
// imported event say where its keys are.
func (b *Box) OpenPayload(ctx context.Context, namespace, stream string, metadata, payload []byte) (plain []byte, opened bool, err error) {
	if !seal.IsSealed(payload) {
		return payload, false, nil
	}
	if from, imported := pg.OriginOf(metadata); imported {
		return b.openImported(ctx, stream, from, payload)
	}
	plain, keyed, err := b.open(ctx, seal.Stream{Namespace: namespace, Name: stream}, payload)
	switch {
	case err != nil:
		return nil, false, fmt.Errorf("%w: %w", ErrSealed, err)
	case !keyed:
		return payload, false, nil
	}
	return plain, true, nil
}

// open opens what is sealed with keys of this database. keyed says whether the
// stream has or had any.
func (b *Box) open(ctx context.Context, at seal.Stream, payload []byte) (plain []byte, keyed bool, err error) {
	keyed, err = b.hasKeys(ctx, at)
	if err != nil || !keyed {
		return nil, keyed, err
	}
	if b.sealer == nil {
		return nil, true, fmt.Errorf("open payload of %s: %w", at, hinted(seal.ErrNoKeeper))
	}
	plain, err = openJSON(ctx, b.sealer.Opener, at, payload)
	return plain, true, err
}

func openJSON(ctx context.Context, opener *seal.Opener, at seal.Stream, payload []byte) ([]byte, error) {
	plain, err := opener.Open(ctx, at, payload)
	if err == nil && !json.Valid(plain) {
		err = fmt.Errorf("open payload of %s: %w", at, errNotJSON)
	}
	if err != nil {
		return nil, hinted(err)
	}
	return plain, nil
}

// IsFinal reports whether a payload that does not open never will.
func IsFinal(err error) bool {
	return errors.Is(err, seal.ErrNoKey) || errors.Is(err, seal.ErrAltered) || errors.Is(err, errNotJSON)
}

// IsGone reports whether it does not open because its key was destroyed.
func IsGone(err error) bool { return errors.Is(err, seal.ErrNoKey) }

// Complain logs that a payload does not open yet, now and then for each stream.
func (b *Box) Complain(namespace, stream string, err error) {
	b.mu.Lock()
	last, known := b.complained[stream]
	again := !known || time.Since(last) > complaintPeriod
	if again {
		if len(b.complained) >= mostStreams {
			clear(b.complained)
		}
		b.complained[stream] = time.Now()
	}
	b.mu.Unlock()
	if again {
		b.log.Error("events cannot be opened yet; they are tried again", "namespace", namespace, "stream", stream, "error", err)
	}
}

// hintedError says what to do about a missing keeper, or a missing key.
type hintedError struct {
	error
	hint string
}

func (e hintedError) Unwrap() error { return e.error }

func (e hintedError) Hint() string { return e.hint }

func hinted(err error) error {
	if errors.Is(err, seal.ErrNoKeeper) {
		return hintedError{err, "Name it in Config.Seal.Keepers, or with posthorn's --seal-key FILE-URL or --keeper NAME=URL; see docs/sealing.md."}
	}
	return err
}
