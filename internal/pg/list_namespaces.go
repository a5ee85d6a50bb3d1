package pg

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"
)

// Namespace is a tenant.
type Namespace struct {
	Name      string
	CreatedAt time.Time
	Metadata  json.RawMessage
}

// ListNamespaces returns all namespaces by name.
func ListNamespaces(ctx context.Context, db DB) ([]Namespace, error) {
	return list(ctx, db, "list namespaces", pgx.RowToStructByPos[Namespace],
		"select namespace, created_at, metadata from posthorn.namespaces order by namespace")
}
