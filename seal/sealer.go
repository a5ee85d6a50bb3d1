package seal

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// Sealer seals payloads, and opens them. Many goroutines may use it at once.
type Sealer struct {
	*Opener
	rotateAfter time.Duration
	rotateCount int64
}

// NewSealer returns a Sealer. It adds keys to the store when a stream has none, or
// needs a new one.
func NewSealer(keys Keys, keepers Keepers, config Config) *Sealer {
	config = config.withDefaults()
	return &Sealer{NewOpener(keys, keepers, config), config.RotateAfter, config.RotateCount}
}

// Seal encrypts a payload for a stream. What it returns is a JSON object, whatever the
// payload is; [SealedSize] says how long.
func (s *Sealer) Seal(ctx context.Context, stream Stream, payload []byte) ([]byte, error) {
	if stream.Namespace == "" || stream.Name == "" {
		return nil, errors.New("seal payload: the stream has no name or namespace")
	}
	for {
		key, err := s.cache.get(ctx, slot{stream: stream}, s.renew)
		if err != nil {
			return nil, fmt.Errorf("seal payload of %s: %w", stream, err)
		}
		if sealed, ok := key.seal(payload); ok {
			return sealed, nil
		}
	}
}

// renew returns the key that seals at present: the newest, or a newer one.
func (s *Sealer) renew(ctx context.Context, at slot, old *dataKey) (*dataKey, error) {
	var spent uint32 // the version that has sealed enough
	var rotated bool // somebody has made a key since we began, so it is young enough
	for range 10 {   // each turn but the last follows somebody's progress
		ring, err := s.keys.Load(ctx, at.stream)
		if err != nil {
			return nil, fmt.Errorf("load keys: %w", err)
		}
		newest, found := ring.newest()
		if !found || newest.Version == spent || !rotated && !time.Now().Before(s.due(ring, newest)) {
			if err := s.rotate(ctx, at.stream, ring); err != nil {
				return nil, err
			}
			rotated = true
			continue
		}
		key, err := s.sealing(ctx, at.stream, ring, newest, old)
		switch {
		case errors.Is(err, errSpent):
			spent = newest.Version
		case errors.Is(err, ErrNoKey): // destroyed since we have loaded it
		default:
			return key, err
		}
	}
	return nil, errors.New("keys change faster than they can be used")
}

// due is when a key is too old.
func (s *Sealer) due(ring Ring, key WrappedKey) time.Time {
	if ring.RotateAfter > 0 {
		return key.Created.Add(ring.RotateAfter)
	}
	return key.Created.Add(s.rotateAfter)
}

// rotate adds the next version, unless another process does.
func (s *Sealer) rotate(ctx context.Context, stream Stream, ring Ring) error {
	if ring.Last == math.MaxUint32 {
		return errors.New("the stream has used up all versions of keys")
	}
	next := WrappedKey{Version: ring.Last + 1, Keeper: ring.Keeper}
	var err error
	if next.Key, err = s.keepers.wrap(ctx, next.Keeper, stream, next.Version); err != nil {
		return err
	}
	// A key that cannot be unwrapped must not become the one that seals.
	plain, err := s.keepers.unwrap(ctx, stream, next)
	if err != nil {
		return err
	}
	clear(plain)
	if err := s.keys.Add(ctx, stream, next); err != nil && !errors.Is(err, ErrKeyExists) {
		return fmt.Errorf("add key %d: %w", next.Version, withhold(err, next.Key))
	}
	return nil
}

var errSpent = errors.New("the key has sealed enough")

// sealing unwraps a key for sealing, with a share of the messages that it may seal.
func (s *Sealer) sealing(ctx context.Context, stream Stream, ring Ring, wrapped WrappedKey, old *dataKey) (*dataKey, error) {
	mine := &share{next: firstShare}
	if old != nil && old.version == wrapped.Version {
		mine = old.share
	}
	if mine.left.Load() <= 0 {
		n := min(mine.next, s.rotateCount)
		used, err := s.keys.Use(ctx, stream, wrapped.Version, n)
		if err != nil {
			return nil, fmt.Errorf("count messages of key %d: %w", wrapped.Version, err)
		}
		if n = min(n, s.rotateCount-(used-n)); n <= 0 {
			return nil, errSpent
		}
		mine.add(n)
	}
	key, err := s.unwrap(ctx, stream, wrapped)
	if err != nil {
		return nil, err
	}
	key.share, key.renewAt = mine, s.due(ring, wrapped)
	return key, nil
}
