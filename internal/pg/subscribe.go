package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// KeepSubscriptions prolongs the subscriptions of a group, since a worker reads the group.
// It reports whether the group has any.
func KeepSubscriptions(ctx context.Context, db DB, group Group) (bool, error) {
	filtered, err := Value[bool](ctx, db, "keep subscriptions", "select posthorn.keep_subscriptions($1::bigint)", group.ID)
	if p, ok := db.(*Pool); ok && filtered {
		p.filtered.Store(group.ID, true)
	}
	return filtered, err
}

// SubscriptionsNamed returns those of some names that are subscriptions of a group.
func SubscriptionsNamed(ctx context.Context, db DB, group Group, names []string) ([]string, error) {
	return Collect(ctx, db, "list subscriptions", pgx.RowTo[string],
		"select s.name from posthorn.subscriptions s where s.group_no = $1::bigint and s.name = any ($2::text[])", group.ID, names)
}
