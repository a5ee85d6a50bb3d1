package seal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"
)

// Sealer seals payloads, and opens them. Many goroutines may use it at once.
type Sealer struct {
	*Opener
	rotateAfter time.Duration
	rotateCount int64

	mu       sync.Mutex
	reported map[Stream]uint32 // the last version that was reported not to open
}

// NewSealer returns a Sealer. It adds keys to the store when a stream has none, or
// needs a new one.
func NewSealer(keys Keys, keepers Keepers, config Config) *Sealer {
	config = config.withDefaults()
	return &Sealer{
		Opener: NewOpener(keys, keepers, config), rotateAfter: config.RotateAfter, rotateCount: config.RotateCount,
		reported: map[Stream]uint32{},
	}
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

// mostUnopened is how many keys that do not open are passed over before another is made.
const mostUnopened = 5

// renew returns the key that seals at present: the newest, or a newer one. Whoever
// publishes may add keys, also one that no keeper opens, so that is passed over: the
// newest key that opens seals, while it is not due to be replaced.
func (s *Sealer) renew(ctx context.Context, at slot, old *dataKey) (*dataKey, error) {
	var spent uint32               // the version that has sealed enough
	var unopened []uint32          // versions that do not open
	var notOpened error            // why the newest of them does not
	made := uint32(math.MaxUint32) // later versions were made since we began, so they are young enough
	for range 10 {                 // each turn but the last follows somebody's progress
		ring, err := s.keys.Load(ctx, at.stream)
		if err != nil {
			return nil, fmt.Errorf("load keys: %w", err)
		}
		next, found := ring.newest(unopened)
		isNew := next.Version > made
		if !found || next.Version == spent || !isNew && (len(unopened) >= mostUnopened || !time.Now().Before(s.due(ring, next))) {
			if err := s.rotate(ctx, at.stream, ring); err != nil {
				return nil, cmp.Or(notOpened, err) // one keeper that is away is the cause of both
			}
			made = ring.Last
			continue
		}
		key, err := s.sealing(ctx, at.stream, ring, next, old)
		switch {
		case errors.Is(err, errSpent):
			spent = next.Version
		case errors.Is(err, ErrNoKey): // destroyed since we have loaded it
		case s.mayPassOver(ctx, err, ring, next, old):
			s.reportUnopened(at.stream, next.Version, err)
			unopened = append(unopened, next.Version)
			notOpened = cmp.Or(notOpened, err)
		default:
			return key, err
		}
	}
	return nil, cmp.Or(notOpened, errors.New("keys change faster than they can be used"))
}

// mayPassOver reports whether a key does not open, and another may seal. A process
// without the keeper that the stream names must not go on with an older one; and a
// key that has opened here opens again when its keeper is back.
func (s *Sealer) mayPassOver(ctx context.Context, err error, ring Ring, key WrappedKey, old *dataKey) bool {
	var failed unwrapError
	_, noKeeper := s.keepers.named(ring.Keeper)
	return errors.As(err, &failed) && ctx.Err() == nil && noKeeper == nil && (old == nil || old.version != key.Version)
}

// reportUnopened logs once for each version.
func (s *Sealer) reportUnopened(stream Stream, version uint32, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if version <= s.reported[stream] {
		return
	}
	s.reported[stream] = version
	s.cache.logger.Error("a data key does not open and is passed over",
		"namespace", stream.Namespace, "stream", stream.Name, "version", version, "error", err)
}

// due is when a key is too old.
func (s *Sealer) due(ring Ring, key WrappedKey) time.Time {
	switch {
	case key.Retired:
		return key.Created
	case ring.RotateAfter > 0:
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

// unwrapError says that a key does not open, or not now: keepers do not tell these apart.
type unwrapError struct{ error }

func (e unwrapError) Unwrap() error { return e.error }

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
		return nil, unwrapError{err}
	}
	key.share, key.renewAt = mine, s.due(ring, wrapped)
	return key, nil
}
