package admin

import "context"

// RebasedGroup is a group with the number of events that it had yet to get.
type RebasedGroup struct {
	Namespace string `json:"namespace"`
	Group     string `json:"group" db:"group_name"`
	Events    int64  `json:"events"`
}

// Rebase makes a log usable that was restored into another cluster. It fails with
// posthorn.ErrRefused where that is not necessary, unless forced.
func (a *Admin) Rebase(ctx context.Context, force bool) ([]RebasedGroup, error) {
	return rows[RebasedGroup](ctx, a.db, "rebase", "select * from posthorn.rebase($1::boolean)", force)
}
