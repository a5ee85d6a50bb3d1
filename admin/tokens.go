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
	ID        int
	Namespace *string // nil: every namespace
	Prefix    string  // the beginning of the secret
	Secret    string  // requests carry it as Authorization: Bearer
}

// Holding returns an Admin for a caller over HTTP: with the rights of the API token that it
// has sent, or with nil while no token is needed because there is none yet. The caller makes
// no token that has more rights than its own, and none without a token of its own. Without
// the scope admin it writes no conditions in SQL. If the token is valid in one namespace,
// other namespaces do not exist, and tokens of every namespace are neither listed nor revoked.
func (a *Admin) Holding(t *FoundToken) *Admin {
	other := *a
	if other.held = t; t == nil {
		other.held = &FoundToken{}
	}
	return &other
}

// CreateToken creates an API token. From the first token on, every request needs one.
func (a *Admin) CreateToken(ctx context.Context, t NewToken) (Token, error) {
	if a.held != nil && a.held.ID == 0 {
		return Token{}, pg.Refused("the first token is not made over HTTP: from then on every request needs one",
			"Make it with the command line: posthorn tokens create NAME --scope all.")
	}
	secret := token.New()
	made := Token{Namespace: &a.namespace, Prefix: secret.Prefix, Secret: secret.Secret}
	if t.AllNamespaces {
		made.Namespace = nil
	}
	hash := secret.Hash()
	args := []any{t.Name, hash[:], made.Prefix, list(t.Scopes), made.Namespace, list(t.Streams), pg.Optional(t.ExpiresAt)}
	create := "select posthorn.create_token($1::text, $2::bytea, $3::text, $4::text[], $5::text, $6::text[], $7::timestamptz)"
	if a.held != nil {
		create = "select posthorn.grant_token($8::int, $1::text, $2::bytea, $3::text, $4::text[], $5::text, $6::text[], $7::timestamptz)"
		args = append(args, a.held.ID)
	}
	var err error
	made.ID, err = changed[int](ctx, a, noStream, entry{"create-token", t.Name, map[string]any{"prefix": made.Prefix, "scopes": t.Scopes}}, create, args...)
	return made, err
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

const selectTokens = "select * from posthorn.list_tokens($1::text) t where t.id = coalesce($2::int, t.id)"

// Tokens returns the API tokens that are valid in the namespace.
func (a *Admin) Tokens(ctx context.Context) ([]TokenStatus, error) {
	return a.tokens(ctx, &a.namespace, nil)
}

// AllTokens returns the API tokens of every namespace.
func (a *Admin) AllTokens(ctx context.Context) ([]TokenStatus, error) {
	if a.boundTo() != nil {
		return nil, errOneNamespace()
	}
	return a.tokens(ctx, nil, nil)
}

// Token returns an API token that is valid in the namespace.
func (a *Admin) Token(ctx context.Context, id int) (TokenStatus, error) {
	found, err := a.tokens(ctx, &a.namespace, &id)
	return only(a, found, err, "token", strconv.Itoa(id), "See: posthorn tokens list")
}

func (a *Admin) tokens(ctx context.Context, namespace *string, id *int) ([]TokenStatus, error) {
	found, err := rows[TokenStatus](ctx, a.db, "list tokens", selectTokens, namespace, id)
	for i, t := range found {
		found[i].Streams = slices.DeleteFunc(t.Streams, func(stream string) bool { return !a.seesNamed(t, stream) })
	}
	return found, err
}

// seesNamed tells whether the caller may know that a token names a stream. The hidden
// streams are those of one namespace. Of another one the caller knows the streams that its
// own token names.
func (a *Admin) seesNamed(t TokenStatus, stream string) bool {
	here := t.Namespace != nil && *t.Namespace == a.namespace
	return a.Reads(stream) && (a.held == nil || here || slices.Contains(a.held.Streams, stream))
}

// boundTo returns the only namespace in which the caller has rights; nil if there are others.
func (a *Admin) boundTo() *string {
	if a.held == nil {
		return nil
	}
	return a.held.Namespace
}

// mayWriteConditions reports whether the caller may write conditions in SQL.
func (a *Admin) mayWriteConditions() bool {
	return a.held == nil || a.held.ID == 0 || slices.Contains(a.held.Scopes, "admin")
}

func errOneNamespace() error {
	return pg.Refused("the token is valid in one namespace only", "Use a token that is valid in every namespace.")
}

// RevokeToken revokes an API token for good, and reports whether it was valid until now.
func (a *Admin) RevokeToken(ctx context.Context, id int) (bool, error) {
	if err := a.checkRevoke(ctx, id); err != nil {
		return false, err
	}
	return changed[bool](ctx, a, noStream, entry{"revoke-token", strconv.Itoa(id), nil}, "select posthorn.revoke_token($1::int)", id)
}

// checkRevoke refuses to revoke a token that has rights where the caller has none.
func (a *Admin) checkRevoke(ctx context.Context, id int) error {
	if a.held == nil {
		return nil
	}
	t, err := a.Token(ctx, id)
	if err == nil && t.Namespace == nil && a.boundTo() != nil {
		err = errOneNamespace()
	}
	return err
}

// RevokeTokens revokes the API tokens of every namespace, and returns how many were not
// revoked before. If open, it deletes them, so that requests need none. Callers over HTTP may
// not: no request could take it back.
func (a *Admin) RevokeTokens(ctx context.Context, open bool) (int64, error) {
	if a.held != nil {
		return 0, pg.Refused("all tokens are not revoked over HTTP", "Use the command line: posthorn tokens revoke --all.")
	}
	return changed[int64](ctx, a, noStream, entry{"revoke-tokens", "", nil}, "select posthorn.revoke_tokens($1::bool)", open)
}

// TokensRequired reports whether requests need an API token: whether one was ever
// created.
func (a *Admin) TokensRequired(ctx context.Context) (bool, error) {
	return pg.Value[bool](ctx, a.db, "look for tokens", "select posthorn.tokens_required()")
}

// FoundToken is the rights of a valid API token.
type FoundToken struct {
	ID        int      `db:"id"`
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
