package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// StreamKeys are the keys of a stream, wrapped.
type StreamKeys struct {
	Last        int64 // the highest version that there ever was
	Keeper      string
	RotateAfter time.Duration // 0 leaves it to the process
	Keys        []StreamKey
}

// StreamKey is a data key, as the database has it.
type StreamKey struct {
	Version int64
	Age     time.Duration // by the database's clock
	Retired bool          // the stream is to have a newer one
	Keeper  string
	Key     []byte
}

// LoadStreamKeys reads the keys of a stream, as far as they are not destroyed.
func LoadStreamKeys(ctx context.Context, db DB, namespace, stream string) (StreamKeys, error) {
	var found StreamKeys
	var period *float64
	keys, err := Collect(ctx, db, "load stream keys", func(row pgx.CollectableRow) (key StreamKey, err error) {
		var version *int64
		var age *float64
		var retired *bool
		var keeper *string
		err = row.Scan(&found.Last, &found.Keeper, &period, &version, &age, &retired, &keeper, &key.Key)
		if err == nil && version != nil {
			key.Version, key.Age, key.Retired, key.Keeper = *version, seconds(*age), *retired, *keeper
		}
		return key, err
	}, `
		select last_version::bigint, new_keeper, extract(epoch from rotate_after)::float8, key_version::bigint,
			extract(epoch from age)::float8, retired, keeper, key
		from posthorn.load_stream_keys($1::text, $2::text)`, namespace, stream)
	if period != nil {
		found.RotateAfter = seconds(*period)
	}
	if len(keys) == 1 && keys[0].Version == 0 { // there is none
		keys = nil
	}
	found.Keys = keys
	return found, err
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// AddStreamKey adds the next key of a stream. If another has its version it is
// [ErrConflict].
func AddStreamKey(ctx context.Context, db DB, namespace, stream string, key StreamKey) error {
	return Exec(ctx, db, "add stream key",
		"select posthorn.add_stream_key($1::text, $2::text, $3::bigint, $4::text, $5::bytea)",
		namespace, stream, key.Version, key.Keeper, key.Key)
}

// UseStreamKey counts messages that a key may have sealed, and returns the sum.
// Without the key it is [ErrNotFound].
func UseStreamKey(ctx context.Context, db DB, namespace, stream string, version, n int64) (int64, error) {
	return Value[int64](ctx, db, "use stream key",
		"select posthorn.use_stream_key($1::text, $2::text, $3::bigint, $4::bigint)", namespace, stream, version, n)
}
