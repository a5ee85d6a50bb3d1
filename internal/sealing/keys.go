package sealing

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

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
	rows, err := pg.Collect(ctx, k.DB, "load stream keys", pgx.RowToStructByName[streamKey], `
		select last_version, new_keeper, coalesce(rotate_after, '0') as rotate_after, coalesce(key_version, 0) as key_version,
			coalesce(age, '0') as age, coalesce(retired, false) as retired, coalesce(keeper, '') as keeper, key
		from posthorn.load_stream_keys($1::text, $2::text)`, at.Namespace, at.Name)
	if err != nil || len(rows) == 0 {
		return seal.Ring{}, err
	}
	ring := seal.Ring{Last: rows[0].LastVersion, Keeper: rows[0].NewKeeper, RotateAfter: rows[0].RotateAfter}
	for _, r := range rows {
		if r.KeyVersion == 0 { // the one row of a stream without keys
			break
		}
		ring.Keys = append(ring.Keys, seal.WrappedKey{
			Version: r.KeyVersion, Created: began.Add(-r.Age), Retired: r.Retired, Keeper: r.Keeper, Key: r.Key,
		})
	}
	return ring, nil
}

// streamKey is a wrapped key, with the settings of its stream.
type streamKey struct {
	LastVersion uint32
	NewKeeper   string
	RotateAfter time.Duration
	KeyVersion  uint32
	Age         time.Duration
	Retired     bool
	Keeper      string
	Key         []byte
}

// Add implements [seal.Keys].
func (k Keys) Add(ctx context.Context, at seal.Stream, key seal.WrappedKey) error {
	err := pg.Exec(ctx, k.DB, "add stream key", "select posthorn.add_stream_key($1::text, $2::text, $3::bigint, $4::text, $5::bytea)",
		at.Namespace, at.Name, key.Version, key.Keeper, key.Key)
	if errors.Is(err, pg.ErrConflict) {
		return seal.ErrKeyExists
	}
	return err
}

// Use implements [seal.Keys].
func (k Keys) Use(ctx context.Context, at seal.Stream, version uint32, n int64) (int64, error) {
	used, err := pg.Value[int64](ctx, k.DB, "use stream key", "select posthorn.use_stream_key($1::text, $2::text, $3::bigint, $4::bigint)",
		at.Namespace, at.Name, version, n)
	if errors.Is(err, pg.ErrNotFound) {
		return 0, seal.ErrNoKey
	}
	return used, err
}
