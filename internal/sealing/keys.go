package sealing

import (
	"context"
	"errors"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/seal"
)

// Keys is the store of wrapped keys in the database.
type Keys struct {
	// DB must not be a transaction, which may roll back.
	DB pg.DB
}

// Load implements [seal.Keys]. The database measures the age of a key; Created is
// this process's clock minus that age, since the caller compares it with the same
// clock.
func (k Keys) Load(ctx context.Context, at seal.Stream) (seal.Ring, error) {
	began := time.Now()
	found, err := pg.LoadStreamKeys(ctx, k.DB, at.Namespace, at.Name)
	if err != nil {
		return seal.Ring{}, err
	}
	ring := seal.Ring{Last: uint32(found.Last), Keeper: found.Keeper, RotateAfter: found.RotateAfter}
	for _, key := range found.Keys {
		ring.Keys = append(ring.Keys, seal.WrappedKey{
			Version: uint32(key.Version), Created: began.Add(-key.Age), Retired: key.Retired, Keeper: key.Keeper, Key: key.Key,
		})
	}
	return ring, nil
}

// Add implements [seal.Keys].
func (k Keys) Add(ctx context.Context, at seal.Stream, key seal.WrappedKey) error {
	err := pg.AddStreamKey(ctx, k.DB, at.Namespace, at.Name, pg.StreamKey{Version: int64(key.Version), Keeper: key.Keeper, Key: key.Key})
	if errors.Is(err, pg.ErrConflict) {
		return seal.ErrKeyExists
	}
	return err
}

// Use implements [seal.Keys].
func (k Keys) Use(ctx context.Context, at seal.Stream, version uint32, n int64) (int64, error) {
	used, err := pg.UseStreamKey(ctx, k.DB, at.Namespace, at.Name, int64(version), n)
	if errors.Is(err, pg.ErrNotFound) {
		return 0, seal.ErrNoKey
	}
	return used, err
}
