package pg

import "context"

// BeginReplacement begins to build a replacement of a projection, and returns the group of
// the replacement. If one has begun already, fresh is false.
func BeginReplacement(ctx context.Context, tx DB, namespace, name string, partial bool) (group Group, fresh bool, err error) {
	group.Namespace = namespace
	err = tx.QueryRow(ctx, `
		select r.group_id, r.fresh, g.name
		from posthorn.begin_replacement($1::text, $2::text, $3::boolean) r
		cross join lateral (select posthorn.replacement_name($2::text) as name) g`,
		namespace, name, partial).Scan(&group.ID, &fresh, &group.Name)
	return group, fresh, Translate("replace projection", err)
}

// FinishReplacement replaces a projection by its replacement, if that has caught up, and
// reports whether it has. The caller then swaps the tables in the same transaction. It
// fails with [ErrNotFound] when there is no replacement: another process may have finished
// it.
func FinishReplacement(ctx context.Context, tx DB, namespace, name string) (bool, error) {
	return Value[bool](ctx, tx, "replace projection", "select posthorn.finish_replacement($1::text, $2::text)", namespace, name)
}
