package seal

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
)

// Opener opens what a [Sealer] sealed. Many goroutines may use it at once.
type Opener struct {
	keys    Keys
	keepers Keepers
	cache   *cache
}

// NewOpener returns an Opener. It reads from the store only.
func NewOpener(keys Keys, keepers Keepers, config Config) *Opener {
	return &Opener{keys, keepers, newCache(config.withDefaults())}
}

// Open returns the payload that was sealed for the stream. Errors that stay, however
// often one tries, are [ErrNotSealed], [ErrAltered] and [ErrNoKey].
func (o *Opener) Open(ctx context.Context, stream Stream, sealed []byte) ([]byte, error) {
	m, err := parse(sealed)
	if err != nil {
		return nil, fmt.Errorf("open payload of %s: %w", stream, err)
	}
	for {
		key, err := o.cache.get(ctx, slot{stream, m.keyVersion}, o.load)
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

// Forget zeroes what is in memory of a stream's keys, so that the store is asked
// again: for who has heard that they have changed.
func (o *Opener) Forget(stream Stream) { o.cache.forget(stream) }

// Close zeroes the keys that are in memory. Whoever seals or opens afterwards gets
// [ErrClosed]. The keepers stay open.
func (o *Opener) Close() { o.cache.close() }

// load reads the key of a version.
func (o *Opener) load(ctx context.Context, at slot, _ *dataKey) (*dataKey, error) {
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

// String hides what is inside.
func (*Opener) String() string { return redacted }

// GoString hides what is inside.
func (*Opener) GoString() string { return redacted }

// Format hides what is inside from all verbs.
func (*Opener) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "%s", redacted) }

// LogValue hides what is inside.
func (*Opener) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalJSON hides what is inside.
func (*Opener) MarshalJSON() ([]byte, error) { return json.Marshal(redacted) }
