package admin

import (
	"context"
	"strconv"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/token"
)

// NewToken is an API token that is to be made. Name and Scopes are required.
type NewToken struct {
	Name          string    // for people
	AllNamespaces bool      // Default: good in one namespace
	Scopes        []string  // read, publish, consume, jobs:create, jobs:work, admin or all
	Streams       []string  // the restricted streams that it may read and publish to
	ExpiresAt     time.Time // Default: never
}

// Token is an API token that was just made. Its secret is not kept anywhere else.
type Token struct {
	ID     int
	Prefix string // how it begins
	Secret string // all of it: requests carry it as Authorization: Bearer
}

// CreateToken makes an API token. From the first one on, every request needs one.
func (a *Admin) CreateToken(ctx context.Context, t NewToken) (Token, error) {
	made := token.New()
	hash := made.Hash()
	namespace := &a.namespace
	if t.AllNamespaces {
		namespace = nil
	}
	id, err := changed[int](ctx, a, entry{"create-token", t.Name, map[string]any{"prefix": made.Prefix, "scopes": t.Scopes}}, `
		select posthorn.create_token($1::text, $2::bytea, $3::text, $4::text[], $5::text, $6::text[], $7::timestamptz)`,
		t.Name, hash[:], made.Prefix, list(t.Scopes), namespace, list(t.Streams), given(t.ExpiresAt))
	return Token{ID: id, Prefix: made.Prefix, Secret: made.Secret}, err
}

// TokenStatus is an API token as it stands.
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

// Tokens returns the API tokens that are good in the namespace.
func (a *Admin) Tokens(ctx context.Context) ([]TokenStatus, error) {
	return a.tokens(ctx, &a.namespace)
}

// AllTokens returns the API tokens of every namespace.
func (a *Admin) AllTokens(ctx context.Context) ([]TokenStatus, error) { return a.tokens(ctx, nil) }

func (a *Admin) tokens(ctx context.Context, namespace *string) ([]TokenStatus, error) {
	return pg.Rows[TokenStatus](ctx, a.db, "list tokens", "select * from posthorn.list_tokens($1::text)", namespace)
}

// RevokeToken ends an API token for good, and reports whether it was good until now.
func (a *Admin) RevokeToken(ctx context.Context, id int) (bool, error) {
	return changed[bool](ctx, a, entry{"revoke-token", strconv.Itoa(id), nil}, "select posthorn.revoke_token($1::int)", id)
}

// RevokeTokens ends the API tokens of every namespace, and returns how many had not
// been revoked. If open, it forgets them, so that none is required.
func (a *Admin) RevokeTokens(ctx context.Context, open bool) (int64, error) {
	return changed[int64](ctx, a, entry{"revoke-tokens", "", nil}, "select posthorn.revoke_tokens($1::bool)", open)
}

// TokensRequired reports whether requests need an API token: whether there ever was
// one.
func (a *Admin) TokensRequired(ctx context.Context) (bool, error) {
	return pg.Value[bool](ctx, a.db, "look for tokens", "select posthorn.tokens_required()")
}

// FoundToken is an API token that is good: the rights of its bearer.
type FoundToken struct {
	Name      string   `db:"name"`
	Namespace *string  `db:"namespace"` // nil: every namespace
	Scopes    []string `db:"scopes"`
	Streams   []string `db:"streams"` // the restricted streams that it may read and publish to
}

// FindToken returns the good API token that has a hash, of any namespace, and notes that
// it was used. It returns nil if there is none.
func (a *Admin) FindToken(ctx context.Context, hash []byte) (*FoundToken, error) {
	found, err := pg.Rows[FoundToken](ctx, a.db, "find token", "select * from posthorn.find_token($1::bytea)", hash)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// TokenEnd returns how the API token that has a hash has ended: revoked, expired or "".
func (a *Admin) TokenEnd(ctx context.Context, hash []byte) (string, error) {
	return pg.Value[string](ctx, a.db, "find token", "select coalesce(posthorn.token_end($1::bytea), '')", hash)
}
