package pg

import (
	"context"
)

// BeginReplacement begins to build a projection anew beside itself, or finds the
// replacement that has begun: then fresh is false. The group is the
// replacement's.
func BeginReplacement(ctx context.Context, tx DB, namespace, name string, partial bool) (group Group, fresh bool, err error) {
	group.Namespace = namespace
	err = tx.QueryRow(ctx, `
		select r.group_id, r.fresh, g.name
		from posthorn.begin_replacement($1::text, $2::text, $3::boolean) r
		cross join lateral (select posthorn.replacement_name($2::text) as name) g`,
		namespace, name, partial).Scan(&group.ID, &fresh, &group.Name)
	return group, fresh, Translate("replace projection", err)
}

// FinishReplacement puts a replacement in the place of its projection, if it has
// caught up, and reports whether it has. Then the tables have to be swapped in
// the same transaction, after this. It fails with [ErrNotFound] when there is no
// replacement: another process may have finished it.
func FinishReplacement(ctx context.Context, tx DB, namespace, name string) (bool, error) {
	return Value[bool](ctx, tx, "replace projection", "select posthorn.finish_replacement($1::text, $2::text)", namespace, name)
}
