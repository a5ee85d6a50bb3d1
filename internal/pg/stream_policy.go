package pg

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ConfidentialStreams returns the streams of a namespace whose payloads must be
// sealed: among some, or of all so many of them.
func ConfidentialStreams(ctx context.Context, db DB, namespace string, among []string, limit int) ([]string, error) {
	return Collect(ctx, db, "confidential streams", pgx.RowTo[string],
		"select posthorn.confidential_streams($1::text, $2::text[], $3::int)", namespace, among, limit)
}

// IsPlaintext reports whether an error is that a payload was not sealed, for a
// stream that takes sealed ones only.
func IsPlaintext(err error) bool { return constraint(err) == "sealed_payload" }

// IsWrongKey reports whether an error is that a payload was sealed with a key that
// the stream has not, or not any more.
func IsWrongKey(err error) bool { return constraint(err) == "sealed_key" }

func constraint(err error) string {
	var cause *pgconn.PgError
	if errors.As(err, &cause) && cause.Code == "PH005" {
		return cause.ConstraintName
	}
	return ""
}
