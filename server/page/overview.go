package page

import "context"

func (p *Pages) overview() {
	p.screen(Screen{Path: "", Live: true, Show: showOverview})
}

func showOverview(ctx context.Context, r *Request) (*View, error) {
	return &View{Title: "Overview"}, nil
}
