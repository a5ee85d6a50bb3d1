package admin

import (
	"cmp"
	"context"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// Stream is a channel of events, and its policy.
type Stream struct {
	Name          string    `json:"name" db:"stream_name"`
	CreatedAt     time.Time `json:"created_at,omitzero"` // zero: it has a policy, and has never had an event
	SecurityLevel string    `json:"security_level"`      // open, restricted or confidential

	// Of a confidential stream.
	EncryptionAlg    string        `json:"encryption_alg,omitempty"`
	Keeper           string        `json:"kms_key_id,omitempty"` // the name of the keeper that wraps its keys
	RotationDays     int           `json:"dek_rotation_days,omitempty"`
	ActiveKey        int           `json:"active_key_version,omitempty"`
	ActiveKeyCreated time.Time     `json:"active_key_created_at,omitzero"`
	ActiveKeyAge     time.Duration `json:"-" db:"active_key_age"`
	ReadableKeys     int64         `json:"readable_keys,omitempty"`    // keys that are not destroyed
	LastKey          int           `json:"last_key_version,omitempty"` // the highest version that it has ever had
}

const selectStreams = "select * from posthorn.list_streams($1::text, $2::text, $3::int, $4::text, $5::text[])"

// StreamFilter selects a page of the streams, by name. The zero value selects the first
// 1000.
type StreamFilter struct {
	After string // streams with later names
	Limit int    // Default: 1000
}

// Streams returns streams of the namespace, by name.
func (a *Admin) Streams(ctx context.Context, f StreamFilter) ([]Stream, error) {
	return rows[Stream](ctx, a.db, "list streams", selectStreams, a.namespace, f.After, cmp.Or(f.Limit, 1000), nil, list(a.hidden))
}

// Stream returns one stream.
func (a *Admin) Stream(ctx context.Context, name string) (Stream, error) {
	found, err := rows[Stream](ctx, a.db, "show stream", selectStreams, a.namespace, "", 1, name, list(a.hidden))
	return only(a, found, err, "stream", name, "Publish an event to it, or: posthorn streams set "+name+" --level open.")
}

// StreamPolicy restricts access to a stream, and says whether its payloads are sealed.
type StreamPolicy struct {
	SecurityLevel string // open, restricted or confidential
	Keeper        string // the name of the keeper that wraps the keys; "": the unnamed keeper of each process
	RotationDays  int    // the age at which a key is replaced; 0: each process decides
}

// SetStreamPolicy sets the policy of a stream. Events that were published before stay as
// they are.
func (a *Admin) SetStreamPolicy(ctx context.Context, stream string, p StreamPolicy) error {
	return a.change(ctx, aStream(stream).made(), entry{"set-stream-policy", stream, p}, "select posthorn.set_stream_policy($1::text, $2::text, $3::text, null, $4::text, $5::int)",
		a.namespace, stream, p.SecurityLevel, pg.Optional(p.Keeper), pg.Optional(p.RotationDays))
}

// StreamKey is a key of a confidential stream. The key itself is not shown.
type StreamKey struct {
	Version     int       `json:"version"`
	CreatedAt   time.Time `json:"created_at"`
	Keeper      string    `json:"keeper"`
	Used        int64     `json:"used"` // the number of messages that it may have sealed
	RetiredAt   time.Time `json:"retired_at,omitzero"`
	DestroyedAt time.Time `json:"destroyed_at,omitzero"`
}

// StreamKeys returns the keys that a stream has and had.
func (a *Admin) StreamKeys(ctx context.Context, stream string) ([]StreamKey, error) {
	if err := a.see(ctx, a.db, aStream(stream)); err != nil {
		return nil, err
	}
	return rows[StreamKey](ctx, a.db, "list stream keys", "select * from posthorn.list_stream_keys($1::text, $2::text)", a.namespace, stream)
}

// RotateStreamKey gives a confidential stream a new key, with its next message.
func (a *Admin) RotateStreamKey(ctx context.Context, stream string) error {
	return a.change(ctx, aStream(stream), entry{"rotate-stream-key", stream, nil}, "select posthorn.rotate_stream_key($1::text, $2::text)", a.namespace, stream)
}

// ShredStreamKeys destroys the keys of a stream up to a version, or all keys for version
// 0, and returns their number. Payloads that they sealed are unreadable for good.
func (a *Admin) ShredStreamKeys(ctx context.Context, stream string, upTo int) (int64, error) {
	return changed[int64](ctx, a, aStream(stream), entry{"shred-stream-keys", stream, map[string]int{"up_to": upTo}}, "select posthorn.shred_stream_keys($1::text, $2::text, $3::int)",
		a.namespace, stream, pg.Optional(upTo))
}
