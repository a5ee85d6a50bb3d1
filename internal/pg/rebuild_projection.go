package pg

import (
	"context"
	"fmt"
	"strings"
)

// RebuildProjection moves a projection to the beginning of the log. In the same
// transaction, and after this, its tables have to be emptied. Unless partial, it
// fails with [ErrRefused] when the log no longer holds all that was applied.
func RebuildProjection(ctx context.Context, tx DB, namespace, name string, partial bool) error {
	return run(ctx, tx, "rebuild projection", "select posthorn.rebuild_projection($1::text, $2::text, $3::boolean)", namespace, name, partial)
}

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
	return group, fresh, translate("replace projection", err)
}

// FinishReplacement puts a replacement in the place of its projection, if it has
// caught up, and reports whether it has. Then the tables have to be swapped in
// the same transaction, after this. It fails with [ErrNotFound] when there is no
// replacement: another process may have finished it.
func FinishReplacement(ctx context.Context, tx DB, namespace, name string) (bool, error) {
	return one[bool](ctx, tx, "replace projection", "select posthorn.finish_replacement($1::text, $2::text)", namespace, name)
}

// AbandonReplacement gives a replacement up. The tables that it has built stay
// behind.
func AbandonReplacement(ctx context.Context, db DB, namespace, name string) error {
	return run(Within(ctx, longTime), db, "abandon replacement", "select posthorn.abandon_replacement($1::text, $2::text)", namespace, name)
}

// Truncate empties tables, which are named as in SQL, with the rights of whoever
// is connected. Postgres itself reads the names and quotes them.
func Truncate(ctx context.Context, tx DB, tables ...string) error {
	quoted := make([]string, len(tables))
	for i, table := range tables {
		var err error
		if quoted[i], err = one[string](ctx, tx, fmt.Sprintf("truncate %s", table), `
			select format('%I.%I', n.nspname, c.relname)
			from pg_catalog.pg_class c
			join pg_catalog.pg_namespace n on n.oid = c.relnamespace
			where c.oid = $1::text::regclass`, table); err != nil {
			return err
		}
	}
	return run(ctx, tx, "truncate", "truncate table "+strings.Join(quoted, ", "))
}
