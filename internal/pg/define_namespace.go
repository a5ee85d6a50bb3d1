package pg

import (
	"context"
	"encoding/json"
)

// DefineNamespace makes a namespace, or replaces its metadata.
func DefineNamespace(ctx context.Context, db DB, name string, metadata json.RawMessage) error {
	return run(ctx, db, "define namespace",
		"select posthorn.define_namespace($1::text, $2::json)", name, object(metadata))
}

// CheckNamespace fails with [ErrNotFound] when there is no such namespace.
func CheckNamespace(ctx context.Context, db DB, name string) error {
	return run(ctx, db, "look up namespace", "select posthorn.namespace_id($1::text)", name)
}
