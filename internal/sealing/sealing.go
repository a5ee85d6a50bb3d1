// Package sealing seals the payloads of confidential streams and opens them, with the
// policies and keys in the database. It caches the policies. The format belongs to
// package seal, and the permission to read to the server.
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

// ErrSealed means that a payload is sealed and was not opened.
var ErrSealed = errors.New("the payload cannot be opened")

var errNotJSON = errors.New("the opened payload is not JSON")

// Box seals and opens payloads. It is safe for concurrent use.
type Box struct {
	db     pg.DB
	sealer *seal.Sealer // nil without keepers
	origin *Origin      // holds the keys of imported events; may be nil
	log    *slog.Logger

	mu       sync.Mutex
	policies map[string]*policies  // by namespace
	keyed    map[seal.Stream]keyed // by stream of a sealed payload
	logged   map[string]time.Time  // last error logged, by stream
}

// Limits of the caches. If a cached policy is out of date, the database refuses the
// message, and [Box.Stale] drops the policy.
const (
	policyAge     = 5 * time.Second
	maxNamespaces = 1000
	maxStreams    = 10_000
	logPeriod     = time.Minute
)

// New returns a box. Without a sealer it seals nothing, and opening a sealed payload
// returns an error.
func New(db pg.DB, sealer *seal.Sealer, log *slog.Logger) *Box {
	return &Box{
		db: db, sealer: sealer, log: log,
		policies: map[string]*policies{}, keyed: map[seal.Stream]keyed{}, logged: map[string]time.Time{},
	}
}

// SetOrigin sets the database with the keys of imported events. It must be called
// before the box is used.
func (b *Box) SetOrigin(origin *Origin) { b.origin = origin }

// Seal returns the messages, with the payloads for confidential streams sealed.
// Payloads that are sealed already stay unchanged, and so do the given messages.
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

// named returns the streams of messages, without the default stream, which cannot be
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

// Stale reports whether the database has refused messages because a cached policy or
// key is out of date. It drops that policy or key, so that the caller can seal again
// and retry.
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
// sealed, in a stream that never had a key, stays unchanged. The error is an
// [ErrSealed], and leaves the event unchanged.
func (b *Box) Open(ctx context.Context, namespace string, e *pg.Event) error {
	payload, opened, err := b.OpenPayload(ctx, namespace, e.Stream, e.Metadata, e.Payload)
	if opened {
		e.Payload, e.Confidential = payload, true
	}
	return err
}

// OpenPayload opens a payload of a stream, if it is sealed. The metadata of an
// imported event name the log that has its keys.
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

// open opens a payload with the keys in this database. keyed reports whether the
// stream has or had keys.
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

// IsFinal reports whether opening the payload will fail forever.
func IsFinal(err error) bool {
	return errors.Is(err, seal.ErrNoKey) || errors.Is(err, seal.ErrAltered) || errors.Is(err, errNotJSON)
}

// IsGone reports whether opening failed because the key was destroyed.
func IsGone(err error) bool { return errors.Is(err, seal.ErrNoKey) }

// LogUnopened logs that a payload cannot be opened yet, at most once in a period for
// each stream.
func (b *Box) LogUnopened(namespace, stream string, err error) {
	b.mu.Lock()
	last, known := b.logged[stream]
	due := !known || time.Since(last) > logPeriod
	if due {
		if len(b.logged) >= maxStreams {
			clear(b.logged)
		}
		b.logged[stream] = time.Now()
	}
	b.mu.Unlock()
	if due {
		b.log.Error("events cannot be opened yet and are retried", "namespace", namespace, "stream", stream, "error", err)
	}
}

// hintedError adds advice about a missing keeper or key.
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
