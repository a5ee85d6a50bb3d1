package admin

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/token"
)

// NewToken describes an API token to create. Name and Scopes are required.
type NewToken struct {
	Name          string    // for people
	AllNamespaces bool      // Default: valid in one namespace
	Scopes        []string  // read, publish, consume, jobs:create, jobs:work, admin or all
	Streams       []string  // the restricted streams that it may read and publish to
	ExpiresAt     time.Time // Default: never
}

// Token is an API token that was just created. Its secret is not stored.
type Token struct {
	ID     int
	Prefix string // the beginning of the secret
	Secret string // requests carry it as Authorization: Bearer
}

// CreateToken creates an API token. From the first token on, every request needs one.
func (a *Admin) CreateToken(ctx context.Context, t NewToken) (Token, error) {
	made := token.New()
	hash := made.Hash()
	namespace := &a.namespace
	if t.AllNamespaces {
		namespace = nil
	}
	id, err := changed[int](ctx, a, noStream, entry{"create-token", t.Name, map[string]any{"prefix": made.Prefix, "scopes": t.Scopes}}, `
		select posthorn.create_token($1::text, $2::bytea, $3::text, $4::text[], $5::text, $6::text[], $7::timestamptz)`,
		t.Name, hash[:], made.Prefix, list(t.Scopes), namespace, list(t.Streams), pg.Optional(t.ExpiresAt))
	return Token{ID: id, Prefix: made.Prefix, Secret: made.Secret}, err
}

// TokenStatus is an API token and its state.
type TokenStatus struct {
	ID         int       `json:"id"`
	Name       string    `json:"name"`
	Namespace  *string   `json:"namespace"` // nil: every namespace
	Prefix     string    `json:"prefix"`
	Scopes     []string  `json:"scopes"`
	Streams    []string  `json:"streams"`
	State      string    `json:"state"` // live, expired or revoked
	CreatedAt  time.Time `json:"created_at"`
	ExpiresAt  time.Time `json:"expires_at,omitzero"`
	RevokedAt  time.Time `json:"revoked_at,omitzero"`
	LastUsedAt time.Time `json:"last_used_at,omitzero"` // to the minute
}

// Tokens returns the API tokens that are valid in the namespace.
func (a *Admin) Tokens(ctx context.Context) ([]TokenStatus, error) {
	return a.tokens(ctx, &a.namespace)
}

// AllTokens returns the API tokens of every namespace.
func (a *Admin) AllTokens(ctx context.Context) ([]TokenStatus, error) { return a.tokens(ctx, nil) }

func (a *Admin) tokens(ctx context.Context, namespace *string) ([]TokenStatus, error) {
	found, err := rows[TokenStatus](ctx, a.db, "list tokens", "select * from posthorn.list_tokens($1::text)", namespace)
	for i := range found {
		found[i].Streams = slices.DeleteFunc(found[i].Streams, func(s string) bool { return !a.Reads(s) })
	}
	return found, err
}

// RevokeToken revokes an API token for good, and reports whether it was valid until now.
func (a *Admin) RevokeToken(ctx context.Context, id int) (bool, error) {
	return changed[bool](ctx, a, noStream, entry{"revoke-token", strconv.Itoa(id), nil}, "select posthorn.revoke_token($1::int)", id)
}

// RevokeTokens revokes the API tokens of every namespace, and returns how many were not
// revoked before. If open, it deletes them, so that requests need none.
func (a *Admin) RevokeTokens(ctx context.Context, open bool) (int64, error) {
	return changed[int64](ctx, a, noStream, entry{"revoke-tokens", "", nil}, "select posthorn.revoke_tokens($1::bool)", open)
}

// TokensRequired reports whether requests need an API token: whether one was ever
// created.
func (a *Admin) TokensRequired(ctx context.Context) (bool, error) {
	return pg.Value[bool](ctx, a.db, "look for tokens", "select posthorn.tokens_required()")
}

// FoundToken is the rights of a valid API token.
type FoundToken struct {
	Name      string   `db:"name"`
	Namespace *string  `db:"namespace"` // nil: every namespace
	Scopes    []string `db:"scopes"`
	Streams   []string `db:"streams"` // the restricted streams that it may read and publish to
}

// FindToken returns the valid API token that has a hash, of any namespace, and records
// its use. It returns nil if there is none.
func (a *Admin) FindToken(ctx context.Context, hash []byte) (*FoundToken, error) {
	found, err := rows[FoundToken](ctx, a.db, "find token", "select * from posthorn.find_token($1::bytea)", hash)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// TokenEnd returns why the API token that has a hash is not valid: revoked, expired or "".
func (a *Admin) TokenEnd(ctx context.Context, hash []byte) (string, error) {
	return pg.Value[string](ctx, a.db, "find token", "select coalesce(posthorn.token_end($1::bytea), '')", hash)
}
