package pg

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Stream is a channel of events, and what its policy says.
type Stream struct {
	Name          string     `json:"name"`
	CreatedAt     *time.Time `json:"created_at"` // null: it has a policy, and never had an event
	SecurityLevel string     `json:"security_level"`

	// Of a stream that is confidential.
	EncryptionAlg    *string    `json:"encryption_alg,omitempty"`
	Keeper           *string    `json:"kms_key_id,omitempty"`
	RotationDays     *int       `json:"dek_rotation_days,omitempty"`
	ActiveKey        *int       `json:"active_key_version,omitempty"`
	ActiveKeyCreated *time.Time `json:"active_key_created_at,omitempty"`

	// ReadableKeys are not destroyed; LastKey is the highest version that there ever was.
	ReadableKeys int64 `json:"readable_keys,omitempty"`
	LastKey      *int  `json:"last_key_version,omitempty"`
}

const listStreams = `
	select stream_name, created_at, security_level, encryption_alg, kms_key_id, dek_rotation_days, active_key_version,
		active_key_created_at, readable_keys, last_key_version
	from posthorn.list_streams($1::text, $2::text, $3::int, $4::text)`

// ListStreams returns the streams of a namespace whose names come after one, by
// name, up to a limit.
func ListStreams(ctx context.Context, db DB, namespace, after string, limit int) ([]Stream, error) {
	return list(ctx, db, "list streams", pgx.RowToStructByPos[Stream], listStreams, namespace, after, limit, nil)
}

// FindStream returns one stream.
func FindStream(ctx context.Context, db DB, namespace, name string) (Stream, error) {
	found, err := list(ctx, db, "find stream", pgx.RowToStructByPos[Stream], listStreams, namespace, "", 1, name)
	if err != nil {
		return Stream{}, err
	}
	if len(found) == 0 {
		return Stream{}, &Error{
			Message: fmt.Sprintf("stream %q does not exist in namespace %s", name, namespace), sentinel: ErrNotFound,
			hint: "Its first event makes it, or: posthorn streams set " + name + " --level open.",
		}
	}
	return found[0], nil
}
