package seal

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// Keys is a store of wrapped data keys. All methods may be called by many
// goroutines and processes at once. Package sealtest has what it must pass.
//
// Its calls must not be part of a transaction that may still roll back: a key that
// has sealed must not be lost.
type Keys interface {
	// Load reads what there is of a stream. A stream without keys is no error.
	Load(ctx context.Context, stream Stream) (Ring, error)
	// Add stores a key and sets its Created to the store's time. Unless the version
	// is the Last of the stream plus one it is [ErrKeyExists], so of several who
	// rotate at once one succeeds and the others use what it made.
	Add(ctx context.Context, stream Stream, key WrappedKey) error
	// Use adds n to the count of messages that a key may have sealed, and returns
	// the sum. Without the key it is [ErrNoKey].
	Use(ctx context.Context, stream Stream, version uint32, n int64) (int64, error)
}

// Ring is the keys of a stream.
type Ring struct {
	// Keys are in the order of their versions. Destroyed ones are missing.
	Keys []WrappedKey
	// Last is the highest version that there ever was: the one that seals, unless it does
	// not open. It outlives the keys, so that a version is never given twice.
	Last uint32
	// Keeper is the name in [Keepers] of what wraps new keys.
	Keeper string
	// RotateAfter is the age at which the stream gets a new key. Zero: that of [Config].
	RotateAfter time.Duration
}

// WrappedKey is a data key as the store has it.
type WrappedKey struct {
	// Version counts from 1.
	Version uint32
	Created time.Time
	// Retired: the stream is to have a newer key, whatever the age of this one.
	Retired bool
	// Keeper is the name of what has wrapped the key and can unwrap it.
	Keeper string
	Key    Wrapped
}

// Wrapped is an encrypted data key. It prints as [redacted].
type Wrapped []byte

const redacted = "[redacted]"

// String hides the key.
func (Wrapped) String() string { return redacted }

// GoString hides the key.
func (Wrapped) GoString() string { return redacted }

// Format hides the key from all verbs.
func (Wrapped) Format(f fmt.State, _ rune) { fmt.Fprintf(f, "%s", redacted) }

// LogValue hides the key.
func (Wrapped) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText hides the key, also from JSON.
func (Wrapped) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalJSON hides the key.
func (Wrapped) MarshalJSON() ([]byte, error) { return json.Marshal(redacted) }

// find returns a version.
func (r Ring) find(version uint32) (WrappedKey, error) {
	for _, key := range r.Keys {
		if key.Version == version {
			return key, nil
		}
	}
	return WrappedKey{}, fmt.Errorf("key %d: %w", version, ErrNoKey)
}

// newest returns the key that seals, unless it was never made or is destroyed; or the
// newest before those that do not open.
func (r Ring) newest(unopened []uint32) (WrappedKey, bool) {
	for _, key := range slices.Backward(r.Keys) {
		if !slices.Contains(unopened, key.Version) {
			return key, key.Version == r.Last || slices.Contains(unopened, r.Last)
		}
	}
	return WrappedKey{}, false
}
