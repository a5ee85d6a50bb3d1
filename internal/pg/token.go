package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// Token is an API token that is made of the hash of its secret. Name, Hash,
// Prefix and Scopes are required.
type Token struct {
	Name      string
	Namespace string // empty: good in every namespace
	Hash      []byte // sha256 of the whole token
	Prefix    string // how it begins, for people
	Scopes    []string
	Streams   []string // the restricted streams that it may read and publish to
	ExpiresAt *time.Time
}

// CreateToken makes an API token and returns its id.
func CreateToken(ctx context.Context, db DB, t Token) (int, error) {
	return one[int](ctx, db, "create token", `
		select posthorn.create_token($1::text, $2::bytea, $3::text, $4::text[], $5::text, $6::text[], $7::timestamptz)`,
		t.Name, t.Hash, t.Prefix, append([]string{}, t.Scopes...), optional(t.Namespace), append([]string{}, t.Streams...), t.ExpiresAt)
}

// TokenStatus is an API token as people see it.
type TokenStatus struct {
	ID         int        `json:"id"`
	Name       string     `json:"name"`
	Namespace  *string    `json:"namespace"` // null: every namespace
	Prefix     string     `json:"prefix"`
	Scopes     []string   `json:"scopes"`
	Streams    []string   `json:"streams"`
	State      string     `json:"state"` // live, expired or revoked
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at"`
	RevokedAt  *time.Time `json:"revoked_at"`
	LastUsedAt *time.Time `json:"last_used_at"` // to the minute
}

// ListTokens returns the API tokens that are good in a namespace, or all if that
// is empty.
func ListTokens(ctx context.Context, db DB, namespace string) ([]TokenStatus, error) {
	return list(ctx, db, "list tokens", pgx.RowToStructByPos[TokenStatus], `
		select id, name, namespace, prefix, scopes, streams, state, created_at, expires_at, revoked_at, last_used_at
		from posthorn.list_tokens($1::text)`, optional(namespace))
}

// RevokeToken ends an API token for good, and reports whether it was good until
// now.
func RevokeToken(ctx context.Context, db DB, id int) (bool, error) {
	return one[bool](ctx, db, "revoke token", "select posthorn.revoke_token($1::int)", id)
}

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
	found, err := list(ctx, db, "find token", pgx.RowToAddrOfStructByPos[FoundToken], `
		select id, name, namespace, prefix, scopes, streams, expires_at from posthorn.find_token($1::bytea)`, hash)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}

// RevokeTokens ends all API tokens, and returns how many had not been revoked. If open,
// it forgets them, so that none is required.
func RevokeTokens(ctx context.Context, db DB, open bool) (int64, error) {
	return one[int64](ctx, db, "revoke tokens", "select posthorn.revoke_tokens($1::bool)", open)
}

// TokenEnd returns how the API token of a hash has ended: "revoked", "expired" or "".
func TokenEnd(ctx context.Context, db DB, hash []byte) (string, error) {
	return one[string](ctx, db, "find token", "select coalesce(posthorn.token_end($1::bytea), '')", hash)
}

// TokensRequired tells whether there ever was an API token.
func TokensRequired(ctx context.Context, db DB) (bool, error) {
	return one[bool](ctx, db, "look for tokens", "select posthorn.tokens_required()")
}
