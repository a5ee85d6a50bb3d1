package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// SetStreamPolicy makes a stream open, or restricted to API tokens that name it.
func SetStreamPolicy(ctx context.Context, db DB, namespace, stream, securityLevel string) error {
	return run(ctx, db, "set stream policy",
		"select posthorn.set_stream_policy($1::text, $2::text, $3::text)", namespace, stream, securityLevel)
}

// RestrictedStreams returns the streams of a namespace that are not for everyone.
func RestrictedStreams(ctx context.Context, db DB, namespace string) ([]string, error) {
	return list(ctx, db, "restricted streams", pgx.RowTo[string],
		"select posthorn.restricted_streams($1::text)", namespace)
}

// GroupStreams returns which of some streams a group may hand out.
func GroupStreams(ctx context.Context, db DB, namespace, group string, streams []string) ([]string, error) {
	return list(ctx, db, "streams of group", pgx.RowTo[string],
		"select posthorn.group_streams($1::text, $2::text, $3::text[])", namespace, group, streams)
}
