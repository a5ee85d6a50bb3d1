package admin

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
)

// RestrictedStreams returns the streams of the namespace that only tokens which name
// them may read and publish to.
func (a *Admin) RestrictedStreams(ctx context.Context) ([]string, error) {
	return a.streams(ctx, "list restricted streams", "select posthorn.restricted_streams($1::text)")
}

// GroupStreams returns those of some streams whose events a group may hand out.
func (a *Admin) GroupStreams(ctx context.Context, group string, streams []string) ([]string, error) {
	return a.streams(ctx, "list streams of group", "select posthorn.group_streams($1::text, $2::text, $3::text[])", group, streams)
}

// HeldStreams returns those of some streams of which a group has failed events, direct
// messages or dead letters. With a subscription, it returns the streams of the failed
// events and direct messages of that subscription.
func (a *Admin) HeldStreams(ctx context.Context, group string, streams []string, subscription *string) ([]string, error) {
	return a.streams(ctx, "list streams that a group holds", "select posthorn.held_streams($1::text, $2::text, $3::text[], $4::text)",
		group, streams, subscription)
}

// LeaseStreams returns those of some streams of which a lease has failed events or
// direct messages.
func (a *Admin) LeaseStreams(ctx context.Context, lease int64, streams []string) ([]string, error) {
	return a.streams(ctx, "list streams of lease", "select posthorn.lease_streams($1::text, $2::bigint, $3::text[])", lease, streams)
}

func (a *Admin) streams(ctx context.Context, verb, sql string, args ...any) ([]string, error) {
	return pg.Collect(ctx, a.db, verb, pgx.RowTo[string], sql, append([]any{a.namespace}, args...)...)
}

// LeaseGroup returns the group that a lease of the namespace belongs to. It fails with
// posthorn.ErrLeaseLost when the lease has ended.
func (a *Admin) LeaseGroup(ctx context.Context, lease int64) (string, error) {
	group, err := pg.Value[string](ctx, a.db, "look up lease", `
		select g.name from posthorn.leases l
		join posthorn.groups g on g.id = l.group_id
		join posthorn.namespaces n on n.id = g.namespace_id
		where l.id = $1::bigint and n.namespace = $2::text`, lease, a.namespace)
	if errors.Is(err, pgx.ErrNoRows) {
		err = pg.LeaseLost("look up lease", lease)
	}
	return group, err
}
