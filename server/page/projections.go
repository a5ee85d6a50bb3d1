package page

import "context"

func (p *Pages) projections() {
	p.screen(Screen{Path: "projections", Live: true, Show: func(ctx context.Context, r *Request) (*View, error) {
		all, err := r.Admin.Projections(ctx)
		return &View{Title: "Projections", Data: all}, err
	}})
}
