package page

import (
	"context"
	"fmt"
	"net/http"

	"github.com/posthorn/posthorn/admin"
)

func (p *Pages) tokens() {
	p.screen(Screen{Path: "tokens", Scope: "admin", Show: listTokens})
	p.screen(Screen{Path: "token/revoke", Under: "tokens", Scope: "admin", Show: askRevoke})
	p.action(Action{Path: "token/revoke", Do: revokeToken})
}

func listTokens(ctx context.Context, r *Request) (*View, error) {
	all, err := r.Admin.Tokens(ctx)
	return &View{Title: "Tokens", Data: all}, err
}

// revocable returns a token that the caller may revoke: a caller who is bound to a
// namespace may not revoke tokens of all namespaces.
func revocable(ctx context.Context, r *Request) (admin.TokenStatus, error) {
	id, err := r.Number("id")
	if err != nil {
		return admin.TokenStatus{}, err
	}
	all, err := r.Admin.Tokens(ctx)
	if err != nil {
		return admin.TokenStatus{}, err
	}
	for _, t := range all {
		if int64(t.ID) == id && (t.Namespace != nil || !r.Bound) {
			return t, nil
		}
	}
	return admin.TokenStatus{}, &Problem{Status: http.StatusNotFound, Detail: fmt.Sprintf("there is no token %d that you may revoke", id)}
}

func askRevoke(ctx context.Context, r *Request) (*View, error) {
	t, err := revocable(ctx, r)
	q := question{
		Sentence: fmt.Sprintf("Revoke token %d, %s?", t.ID, t.Name), Advice: "Programs that use it are let in no more, within seconds. A revoked token stays revoked.",
		Action: "token/revoke", Label: "Revoke", Fields: []any{"id", t.ID}, BackLink: r.Link("tokens"),
	}
	return &View{Title: q.Sentence, Template: "question.html", Data: q}, err
}

func revokeToken(ctx context.Context, r *Request) (string, string, error) {
	t, err := revocable(ctx, r)
	if err != nil {
		return "", "", err
	}
	_, err = r.Admin.RevokeToken(ctx, t.ID)
	return r.Link("tokens"), "Token " + t.Name + " is revoked.", err
}
