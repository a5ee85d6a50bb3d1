package pg

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// RestrictedStreams returns the streams of a namespace that are not for everyone.
func RestrictedStreams(ctx context.Context, db DB, namespace string) ([]string, error) {
	return Collect(ctx, db, "restricted streams", pgx.RowTo[string],
		"select posthorn.restricted_streams($1::text)", namespace)
}

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

// GroupStreams returns which of some streams a group may hand out.
func GroupStreams(ctx context.Context, db DB, namespace, group string, streams []string) ([]string, error) {
	return Collect(ctx, db, "streams of group", pgx.RowTo[string],
		"select posthorn.group_streams($1::text, $2::text, $3::text[])", namespace, group, streams)
}

// HeldStreams returns of which of some streams a group has failed events, direct
// messages or dead letters; with a subscription, those that go with it.
func HeldStreams(ctx context.Context, db DB, namespace, group string, streams []string, subscription *string) ([]string, error) {
	return Collect(ctx, db, "streams that a group holds", pgx.RowTo[string],
		"select posthorn.held_streams($1::text, $2::text, $3::text[], $4::text)", namespace, group, streams, subscription)
}

// LeaseStreams returns of which of some streams a lease has failed events or direct
// messages.
func LeaseStreams(ctx context.Context, db DB, namespace string, lease int64, streams []string) ([]string, error) {
	return Collect(ctx, db, "streams of lease", pgx.RowTo[string],
		"select posthorn.lease_streams($1::text, $2::bigint, $3::text[])", namespace, lease, streams)
}
