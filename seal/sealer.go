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

// Sealer seals payloads, and opens them. It is safe for concurrent use.
type Sealer struct {
	*Opener
	rotateAfter time.Duration
	rotateCount int64

	mu       sync.Mutex
	reported map[Stream]uint32 // by stream, the last version whose failure to open was logged
}

// NewSealer returns a Sealer. It adds keys to the store when a stream has none or
// needs a new one.
func NewSealer(keys Keys, keepers Keepers, config Config) *Sealer {
	config = config.withDefaults()
	return &Sealer{
		Opener: NewOpener(keys, keepers, config), rotateAfter: config.RotateAfter, rotateCount: config.RotateCount,
		reported: map[Stream]uint32{},
	}
}

// Seal encrypts a payload for a stream. The result is a JSON object for every
// payload; [SealedSize] is its length.
func (s *Sealer) Seal(ctx context.Context, stream Stream, payload []byte) ([]byte, error) {
	if stream.Namespace == "" || stream.Name == "" {
		return nil, errors.New("seal payload: the stream has no name or namespace")
	}
	for {
		key, err := s.cache.get(ctx, keyID{stream: stream}, s.renew)
		if err != nil {
			return nil, fmt.Errorf("seal payload of %s: %w", stream, err)
		}
		if sealed, ok := key.seal(payload); ok {
			return sealed, nil
		}
	}
}

// maxUnopened is the number of skipped keys that do not open after which a new key is
// made.
const maxUnopened = 5

// renew loads the sealing key of a stream. Usually that is the newest. A publisher
// may add a key that no keeper can unwrap; renew skips such keys and uses the newest
// key that opens, until that one is due for rotation.
func (s *Sealer) renew(ctx context.Context, at keyID, old *dataKey) (*dataKey, error) {
	var spent uint32               // the version whose count is used up
	var unopened []uint32          // versions that do not open
	var notOpened error            // the error of the newest of these
	made := uint32(math.MaxUint32) // higher versions were made during this call, so they are not due
	for range 10 {                 // every iteration but the last follows the progress of another process
		ring, err := s.keys.Load(ctx, at.stream)
		if err != nil {
			return nil, fmt.Errorf("load keys: %w", err)
		}
		next, found := ring.newest(unopened)
		isNew := next.Version > made
		if !found || next.Version == spent || !isNew && (len(unopened) >= maxUnopened || !time.Now().Before(s.due(ring, next))) {
			if err := s.rotate(ctx, at.stream, ring); err != nil {
				return nil, cmp.Or(notOpened, err) // an unavailable keeper is the cause of both errors
			}
			made = ring.Last
			continue
		}
		key, err := s.sealing(ctx, at.stream, ring, next, old)
		switch {
		case errors.Is(err, errSpent):
			spent = next.Version
		case errors.Is(err, ErrNoKey): // destroyed since it was loaded
		case s.maySkip(ctx, err, ring, next, old):
			s.reportUnopened(at.stream, next.Version, err)
			unopened = append(unopened, next.Version)
			notOpened = cmp.Or(notOpened, err)
		default:
			return key, err
		}
	}
	return nil, cmp.Or(notOpened, errors.New("keys change faster than they can be used"))
}

// maySkip reports whether an older or a new key may seal instead of a key that does
// not open. A process without the keeper that the stream names must not use an older
// key. A key that has opened in this process will open again when its keeper is
// available.
func (s *Sealer) maySkip(ctx context.Context, err error, ring Ring, key WrappedKey, old *dataKey) bool {
	var failed unwrapError
	_, noKeeper := s.keepers.named(ring.Keeper)
	return errors.As(err, &failed) && ctx.Err() == nil && noKeeper == nil && (old == nil || old.version != key.Version)
}

// reportUnopened logs the error once for each version.
func (s *Sealer) reportUnopened(stream Stream, version uint32, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if version <= s.reported[stream] {
		return
	}
	s.reported[stream] = version
	s.cache.logger.Error("a data key does not open and is skipped",
		"namespace", stream.Namespace, "stream", stream.Name, "version", version, "error", err)
}

// due is the time at which a key is too old.
func (s *Sealer) due(ring Ring, key WrappedKey) time.Time {
	switch {
	case key.Retired:
		return key.Created
	case ring.RotateAfter > 0:
		return key.Created.Add(ring.RotateAfter)
	}
	return key.Created.Add(s.rotateAfter)
}

// rotate adds the next version, unless another process has.
func (s *Sealer) rotate(ctx context.Context, stream Stream, ring Ring) error {
	if ring.Last == math.MaxUint32 {
		return errors.New("the stream has used up all versions of keys")
	}
	next := WrappedKey{Version: ring.Last + 1, Keeper: ring.Keeper}
	var err error
	if next.Key, err = s.keepers.wrap(ctx, next.Keeper, stream, next.Version); err != nil {
		return err
	}
	// A key that cannot be unwrapped must not become the sealing key.
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

// unwrapError means that a key does not open, permanently or temporarily: the errors
// of keepers do not tell which.
type unwrapError struct{ error }

func (e unwrapError) Unwrap() error { return e.error }

var errSpent = errors.New("the message count of the key is used up")

// sealing unwraps a key for sealing, with a share of its message count.
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
