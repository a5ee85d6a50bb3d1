package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// FoundToken is a good API token: what its bearer may do.
type FoundToken struct {
	ID        int
	Name      string
	Namespace *string // nil: every namespace
	Prefix    string
	Scopes    []string
	Streams   []string
	ExpiresAt *time.Time
}

// FindToken returns the good API token of a hash, or nil if there is none, and
// notes that it was used.
func FindToken(ctx context.Context, db DB, hash []byte) (*FoundToken, error) {
	found, err := Collect(ctx, db, "find token", pgx.RowToAddrOfStructByPos[FoundToken], `
		select id, name, namespace, prefix, scopes, streams, expires_at from posthorn.find_token($1::bytea)`, hash)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}

// TokenEnd returns how the API token of a hash has ended: "revoked", "expired" or "".
func TokenEnd(ctx context.Context, db DB, hash []byte) (string, error) {
	return Value[string](ctx, db, "find token", "select coalesce(posthorn.token_end($1::bytea), '')", hash)
}
