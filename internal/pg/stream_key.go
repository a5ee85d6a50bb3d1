package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// StreamKeys are the wrapped keys of a stream.
type StreamKeys struct {
	Last        int64 // the highest version that the stream has ever had
	Keeper      string
	RotateAfter time.Duration // 0: the process decides
	Keys        []StreamKey
}

// StreamKey is a wrapped key.
type StreamKey struct {
	Version int64
	Age     time.Duration // by the database's clock
	Retired bool          // the stream must get a newer key
	Keeper  string
	Key     []byte
}

// LoadStreamKeys reads the keys of a stream that are not destroyed.
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
	if len(keys) == 1 && keys[0].Version == 0 { // a row without a key
		keys = nil
	}
	found.Keys = keys
	return found, err
}

func seconds(n float64) time.Duration { return time.Duration(n * float64(time.Second)) }

// AddStreamKey adds the next key of a stream. It fails with [ErrConflict] when another key
// has its version.
func AddStreamKey(ctx context.Context, db DB, namespace, stream string, key StreamKey) error {
	return Exec(ctx, db, "add stream key",
		"select posthorn.add_stream_key($1::text, $2::text, $3::bigint, $4::text, $5::bytea)",
		namespace, stream, key.Version, key.Keeper, key.Key)
}

// UseStreamKey counts messages that a key may have sealed, and returns their total. It
// fails with [ErrNotFound] when there is no such key.
func UseStreamKey(ctx context.Context, db DB, namespace, stream string, version, n int64) (int64, error) {
	return Value[int64](ctx, db, "use stream key",
		"select posthorn.use_stream_key($1::text, $2::text, $3::bigint, $4::bigint)", namespace, stream, version, n)
}
