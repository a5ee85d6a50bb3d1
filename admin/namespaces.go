package admin

import (
	"context"
	"encoding/json"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// Namespace separates one tenant of a database from the others.
type Namespace struct {
	Name      string          `json:"name" db:"namespace"`
	CreatedAt time.Time       `json:"created_at"`
	Metadata  json.RawMessage `json:"metadata"`
}

// Namespaces returns all namespaces of the database, by name.
func (a *Admin) Namespaces(ctx context.Context) ([]Namespace, error) {
	return rows[Namespace](ctx, a.db, "list namespaces",
		"select namespace, created_at, metadata from posthorn.namespaces order by namespace")
}

// DefineNamespace makes the namespace, or replaces its metadata: a JSON object, or
// nil for none.
func (a *Admin) DefineNamespace(ctx context.Context, metadata json.RawMessage) error {
	return pg.Exec(ctx, a.db, "define namespace", "select posthorn.define_namespace($1::text, $2::json)", a.namespace, pg.Document(metadata))
}

// CheckNamespace fails with posthorn.ErrNotFound when the namespace does not exist.
func (a *Admin) CheckNamespace(ctx context.Context) error {
	return pg.Exec(ctx, a.db, "look up namespace", "select posthorn.namespace_id($1::text)", a.namespace)
}
