package op

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
)

var tokens = Topic{"tokens", "token", "3"}

// ListTokensInput says whose tokens are listed.
type ListTokensInput struct {
	Namespace
	AllNamespaces bool `query:"all_namespaces" flag:"all-namespaces" page:"-" doc:"true: the tokens of every namespace"`
}

var ListTokens = Op[ListTokensInput, []admin.TokenStatus]{
	About: About{
		Topic: tokens, Verb: "list", Scope: Admin, SQL: "list_tokens",
		Does: "List tokens, and when they were last used",
		More: "Those that are valid in the namespace, or all of them. Posthorn does not have their secrets, and cannot show " +
			"them. Restricted streams that the caller may not read are left out.",
		Example: "posthorn tokens list --namespace shop",
		ByHand:  map[Face]string{Command: "without --namespace it lists the tokens of every namespace"},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *ListTokensInput) ([]admin.TokenStatus, error) {
		if in.AllNamespaces {
			return a.AllTokens(ctx)
		}
		return a.Tokens(ctx)
	},
}

// CreateTokenInput is a new token.
type CreateTokenInput struct {
	Namespace
	Body struct {
		Name          string   `json:"name" doc:"Who will have it" example:"shop-backend"`
		Scopes        []string `json:"scopes" flag:"scope" maxItems:"100" enum:"read,publish,consume,jobs:create,jobs:work,admin,all" doc:"What it may do"`
		Streams       []string `json:"streams,omitempty" flag:"stream" maxItems:"1000" doc:"Restricted streams that it may read and publish to"`
		ExpiresIn     string   `json:"expires_in,omitempty" flag:"expires-in" doc:"How long it is valid, such as 12h or 90d. Default: until it is revoked" example:"90d"`
		AllNamespaces bool     `json:"all_namespaces,omitempty" flag:"all-namespaces" doc:"true: valid in every namespace"`
	}
}

// MadeToken is a token that was just created.
type MadeToken struct {
	ID        int       `json:"id"`
	Name      string    `json:"name"`
	Namespace *string   `json:"namespace" doc:"null: every namespace"`
	Prefix    string    `json:"prefix" doc:"How it begins"`
	Token     string    `json:"token" doc:"ph_…. No other response shows it"`
	ExpiresAt time.Time `json:"expires_at,omitzero"`
	first     bool
}

// Issued returns the token itself.
func (t MadeToken) Issued() string { return t.Token }

var CreateToken = Op[CreateTokenInput, MadeToken]{
	About: About{
		Topic: tokens, Verb: "create", Method: "POST", Command: "tokens create NAME --scope SCOPE...",
		Does: "Make a token, and show it once",
		More: "Requests send it as Authorization: Bearer TOKEN; Posthorn keeps only its hash. No scope includes another one. " +
			"A token makes no other that has more rights than itself: scopes, namespace, streams and expiry. As soon as there " +
			"is a token, every request needs one, so the first one is made on the command line.",
		Example: "posthorn tokens create shop-backend --scope publish --scope read\n" +
			"TOKEN=$(posthorn tokens create ci --scope jobs:create --expires-in 90d)\n" +
			"posthorn tokens create payroll --scope consume --stream stream:payroll",
	},
	Call: createToken,
	Done: func(_ *CreateTokenInput, made MadeToken) string {
		where := "every namespace"
		if made.Namespace != nil {
			where = "namespace " + *made.Namespace
		}
		sentence := fmt.Sprintf("token %d, %s, for %s; it is shown only this once", made.ID, made.Prefix, where)
		if made.first {
			sentence += "; it is the first: from now on every request needs a token, and posthorn tokens revoke --all --open ends that"
		}
		return sentence
	},
}

func createToken(ctx context.Context, a *admin.Admin, in *CreateTokenInput) (made MadeToken, err error) {
	b := in.Body
	made.Name = b.Name
	if made.ExpiresAt, err = expiry(ctx, a, b.ExpiresIn); err != nil {
		return made, err
	}
	before, err := a.TokensRequired(ctx)
	if err != nil {
		return made, err
	}
	t, err := a.CreateToken(ctx, admin.NewToken{
		Name: b.Name, AllNamespaces: b.AllNamespaces, Scopes: b.Scopes, Streams: b.Streams, ExpiresAt: made.ExpiresAt,
	})
	made.ID, made.Namespace, made.Prefix, made.Token, made.first = t.ID, t.Namespace, t.Prefix, t.Secret, !before
	return made, err
}

// expiry is the time by the database's clock after a lifetime; zero for none.
func expiry(ctx context.Context, a *admin.Admin, lifetime string) (time.Time, error) {
	if lifetime == "" {
		return time.Time{}, nil
	}
	length, err := Lifetime(lifetime)
	if err != nil {
		return time.Time{}, err
	}
	now, err := a.Now(ctx)
	return now.Add(length), err
}

// Lifetime reads a duration, or a number of days such as 90d.
func Lifetime(text string) (time.Duration, error) {
	const longest = 100 * 365 // days
	lifetime, err := time.ParseDuration(text)
	if days, found := strings.CutSuffix(text, "d"); found {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 32)
		lifetime = time.Duration(min(n, longest)) * 24 * time.Hour
	}
	if err != nil || lifetime <= 0 {
		return 0, pg.Invalid(fmt.Sprintf("%.60q is no lifetime", text), "Write it like 12h or 90d.")
	}
	return lifetime, nil
}

// ByToken is the input of operations on a token.
type ByToken struct {
	Namespace
	ID int64 `path:"id" minimum:"1" maximum:"2147483647" doc:"The id of the token, as the list has it"`
}

var RevokeToken = Op[ByToken, admin.TokenStatus]{
	About: About{
		Topic: tokens, Verb: "revoke", Command: "tokens revoke TOKEN|--all",
		Does:    "Revoke a token for good",
		More:    "Within five seconds no server accepts it any more. It stays in the list.",
		Example: "posthorn tokens revoke 3\nposthorn tokens revoke --all --open",
		ByHand:  map[Face]string{Command: "TOKEN may be the beginning of a token, or all of it, and --all revokes all tokens"},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *ByToken) (admin.TokenStatus, error) {
		if _, err := a.Token(ctx, int(in.ID)); err != nil {
			return admin.TokenStatus{}, err
		}
		if _, err := a.RevokeToken(ctx, int(in.ID)); err != nil {
			return admin.TokenStatus{}, err
		}
		return a.Token(ctx, int(in.ID))
	},
	Ask: func(ctx context.Context, a *admin.Admin, in *ByToken) (string, error) {
		t, err := a.Token(ctx, int(in.ID))
		return fmt.Sprintf("revoke token %d, %s", t.ID, t.Name), err
	},
	Done: func(_ *ByToken, out admin.TokenStatus) string { return "token " + out.Name + " is revoked" },
}
