package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Rebased says how many events a group was still owed.
type Rebased struct {
	Namespace string `json:"namespace"`
	Group     string `json:"group"`
	Events    int64  `json:"events"`
}

// Rebase makes a log usable that was restored into another cluster. It refuses
// where there is nothing to do, unless forced.
func Rebase(ctx context.Context, db DB, force bool) ([]Rebased, error) {
	return list(ctx, db, "rebase", pgx.RowToStructByPos[Rebased],
		"select namespace, group_name, events from posthorn.rebase($1::boolean)", force)
}
