package page

import (
	"context"

	"github.com/posthorn/posthorn/op"
)

func (p *Pages) projections() {
	p.screen(Screen{Path: "projections", Live: true, Show: func(ctx context.Context, r *Request) (*View, error) {
		all, err := r.Admin.Projections(ctx)
		return &View{Title: "Projections", Data: all}, err
	}})
	p.operation(op.AbandonReplacement, func(r *Request) string { return r.Link("projections") })
}
