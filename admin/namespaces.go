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
	return rows[Namespace](ctx, a.db, "list namespaces", `
		select namespace, created_at, metadata from posthorn.namespaces
		where $1::text is null or namespace = $1::text order by namespace collate "C"`, a.boundTo())
}

// DefineNamespace makes the namespace, or replaces its metadata: a JSON object, or
// nil for none.
func (a *Admin) DefineNamespace(ctx context.Context, metadata json.RawMessage) error {
	return a.DefineNamespaceNamed(ctx, a.namespace, metadata)
}

// DefineNamespaceNamed is [Admin.DefineNamespace] for a namespace of any name. The audit log
// of that namespace has the entry.
func (a *Admin) DefineNamespaceNamed(ctx context.Context, name string, metadata json.RawMessage) error {
	if own := a.boundTo(); own != nil && *own != name {
		return pg.Translate("define namespace", pg.Refused("the token is valid in its own namespace only", "Make others with posthorn namespaces define, or in SQL."))
	}
	other := *a
	other.namespace = name
	return other.change(ctx, noStream, entry{"define-namespace", name, nil}, "select posthorn.define_namespace($1::text, $2::json)",
		name, pg.Document(metadata))
}

// CheckNamespace fails with posthorn.ErrNotFound when the namespace does not exist.
func (a *Admin) CheckNamespace(ctx context.Context) error {
	return pg.Exec(ctx, a.db, "look up namespace", "select posthorn.namespace_id($1::text)", a.namespace)
}
