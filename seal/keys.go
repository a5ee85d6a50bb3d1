package seal

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"time"
)

// Keys is a store of wrapped data keys. It must be safe for concurrent use by
// goroutines and processes. Package sealtest has the conformance tests.
//
// Its methods must not run in a transaction that may still roll back: a key that has
// sealed a payload must not be lost.
type Keys interface {
	// Load returns the keys of a stream. A stream without keys is no error.
	Load(ctx context.Context, stream Stream) (Ring, error)
	// Add stores a key and sets its Created to the store's time. The version must be
	// the Last of the stream plus one, else Add returns [ErrKeyExists]. So if several
	// processes rotate at once, one succeeds and the others use its key.
	Add(ctx context.Context, stream Stream, key WrappedKey) error
	// Use adds n to the count of messages that a key may have sealed, and returns the
	// sum. It returns [ErrNoKey] if the key does not exist.
	Use(ctx context.Context, stream Stream, version uint32, n int64) (int64, error)
}

// Ring is the keys of a stream.
type Ring struct {
	// Keys are ordered by version, without destroyed ones.
	Keys []WrappedKey
	// Last is the highest version that was ever added, also if it was destroyed
	// since: a version is never reused. The key of that version seals, unless it does
	// not open.
	Last uint32
	// Keeper is the name in [Keepers] of the keeper that wraps new keys.
	Keeper string
	// RotateAfter is the age at which the stream gets a new key. Zero selects the age
	// in [Config].
	RotateAfter time.Duration
}

// WrappedKey is a data key in the form that the store holds.
type WrappedKey struct {
	// Version counts from 1.
	Version uint32
	Created time.Time
	// Retired means that a newer key must replace this one at any age.
	Retired bool
	// Keeper is the name of the keeper that has wrapped the key.
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

// find returns the key of a version.
func (r Ring) find(version uint32) (WrappedKey, error) {
	for _, key := range r.Keys {
		if key.Version == version {
			return key, nil
		}
	}
	return WrappedKey{}, fmt.Errorf("key %d: %w", version, ErrNoKey)
}

// newest returns the newest key whose version is not in unopened. It returns false if
// the key of the version Last is destroyed or was never added.
func (r Ring) newest(unopened []uint32) (WrappedKey, bool) {
	for _, key := range slices.Backward(r.Keys) {
		if !slices.Contains(unopened, key.Version) {
			return key, key.Version == r.Last || slices.Contains(unopened, r.Last)
		}
	}
	return WrappedKey{}, false
}
