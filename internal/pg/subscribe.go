package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// KeepSubscriptions prolongs the subscriptions of a group, since a worker reads the group.
// It reports whether the group has any.
func KeepSubscriptions(ctx context.Context, db DB, group Group) (bool, error) {
	filtered, err := Value[bool](ctx, db, "keep subscriptions", "select posthorn.keep_subscriptions($1::bigint)", group.ID)
	noteFiltered(db, group, filtered)
	return filtered, err
}

func noteFiltered(db DB, group Group, filtered bool) {
	if p, ok := db.(*Pool); ok && filtered {
		p.filtered.Store(group.ID, true)
	}
}

// SubscriptionsNamed returns those of some names that subscriptions of a group have or had
// before.
func SubscriptionsNamed(ctx context.Context, db DB, group Group, names []string) ([]string, error) {
	return Collect(ctx, db, "list subscriptions", pgx.RowTo[string],
		`select n from unnest($2::text[]) n where exists (
			select from posthorn.subscriptions s where s.group_no = $1::bigint and s.name = posthorn.name_now($1::int, n))`, group.ID, names)
}
