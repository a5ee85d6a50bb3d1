package admin

import (
	"context"

	"github.com/posthorn/posthorn/internal/pg"
)

// RebasedGroup is a group, and how many events it was still owed.
type RebasedGroup struct {
	Namespace string `json:"namespace"`
	Group     string `json:"group" db:"group_name"`
	Events    int64  `json:"events"`
}

// Rebase makes a log usable that was restored into another cluster. It refuses where
// there is nothing to do, unless forced.
func (a *Admin) Rebase(ctx context.Context, force bool) ([]RebasedGroup, error) {
	return pg.Rows[RebasedGroup](ctx, a.db, "rebase", "select * from posthorn.rebase($1::boolean)", force)
}
