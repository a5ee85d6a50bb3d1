package pg

import "context"

// HasWork reports whether a claim of the group might find something. It only
// reads, so workers may ask often.
func HasWork(ctx context.Context, db DB, group Group) (bool, error) {
	return Value[bool](ctx, db, "look for work",
		`
		select coalesce((select posthorn.has_work(g) from posthorn.groups g where g.id = $1::bigint and not g.paused), false)`, group.ID)
}
