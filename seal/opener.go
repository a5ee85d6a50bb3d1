package seal

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
)

// Opener opens payloads that a [Sealer] sealed. It is safe for concurrent use.
type Opener struct {
	keys    Keys
	keepers Keepers
	cache   *cache
}

// NewOpener returns an Opener, which only reads from the store.
func NewOpener(keys Keys, keepers Keepers, config Config) *Opener {
	return &Opener{keys, keepers, newCache(config.withDefaults())}
}

// Open returns the payload that was sealed for the stream. The errors [ErrNotSealed],
// [ErrAltered] and [ErrNoKey] are permanent.
func (o *Opener) Open(ctx context.Context, stream Stream, sealed []byte) ([]byte, error) {
	m, err := parse(sealed)
	if err != nil {
		return nil, fmt.Errorf("open payload of %s: %w", stream, err)
	}
	for {
		key, err := o.cache.get(ctx, keyID{stream, m.keyVersion}, o.load)
		if err != nil {
			return nil, fmt.Errorf("open payload of %s: %w", stream, err)
		}
		payload, err, used := key.open(m)
		if err != nil {
			return nil, fmt.Errorf("open payload of %s: %w", stream, err)
		}
		if used {
			return payload, nil
		}
	}
}

// Forget zeroes the cached keys of a stream, so that the next call reads the store
// again.
func (o *Opener) Forget(stream Stream) { o.cache.forget(stream) }

// Close zeroes all cached keys. Later calls of Open return [ErrClosed]. The keepers
// stay open.
func (o *Opener) Close() { o.cache.close() }

// load loads the key of a version.
func (o *Opener) load(ctx context.Context, at keyID, _ *dataKey) (*dataKey, error) {
	ring, err := o.keys.Load(ctx, at.stream)
	if err != nil {
		return nil, fmt.Errorf("load keys: %w", err)
	}
	wrapped, err := ring.find(at.version)
	if err != nil {
		return nil, err
	}
	return o.unwrap(ctx, at.stream, wrapped)
}

func (o *Opener) unwrap(ctx context.Context, s Stream, wrapped WrappedKey) (*dataKey, error) {
	plain, err := o.keepers.unwrap(ctx, s, wrapped)
	if err != nil {
		return nil, err
	}
	return newDataKey(s, wrapped.Version, plain)
}

// String returns a constant, so that no key is printed.
func (*Opener) String() string { return redacted }

// GoString returns a constant, so that no key is printed.
func (*Opener) GoString() string { return redacted }

// Format prints a constant for all verbs, so that no key is printed.
func (*Opener) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "%s", redacted) }

// LogValue returns a constant, so that no key is logged.
func (*Opener) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalJSON returns a constant, so that no key is encoded.
func (*Opener) MarshalJSON() ([]byte, error) { return json.Marshal(redacted) }
