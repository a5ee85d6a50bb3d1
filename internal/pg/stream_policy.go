package pg

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// ConfidentialStreams returns at most limit confidential streams of a namespace, whose
// payloads must be sealed. If among is not nil, it returns only streams in that list.
func ConfidentialStreams(ctx context.Context, db DB, namespace string, among []string, limit int) ([]string, error) {
	return Collect(ctx, db, "list confidential streams", pgx.RowTo[string],
		"select posthorn.confidential_streams($1::text, $2::text[], $3::int)", namespace, among, limit)
}

// IsPlaintext reports whether the database refused a message of a confidential stream
// because its payload was not sealed.
func IsPlaintext(err error) bool { return constraint(err) == "sealed_payload" }

// IsWrongKey reports whether the database refused a message because the stream does not
// have the key of its payload, or has retired it.
func IsWrongKey(err error) bool { return constraint(err) == "sealed_key" }

func constraint(err error) string {
	var cause *pgconn.PgError
	if errors.As(err, &cause) && cause.Code == "PH005" {
		return cause.ConstraintName
	}
	return ""
}
