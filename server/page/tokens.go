package page

import (
	"context"

	"github.com/posthorn/posthorn/op"
)

func (p *Pages) tokens() {
	p.screen(Screen{Path: "tokens", Scope: "admin", Show: listTokens})
	p.operation(op.CreateToken, toTokens)
	p.operation(op.RevokeToken, toTokens)
}

func toTokens(r *Request) string { return r.Link("tokens") }

func listTokens(ctx context.Context, r *Request) (*View, error) {
	all, err := r.Admin.Tokens(ctx)
	return &View{Title: "Tokens", Data: all}, err
}
