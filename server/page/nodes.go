package page

import (
	"context"

	"github.com/posthorn/posthorn/op"
)

func (p *Pages) nodes() {
	p.screen(Screen{Path: "nodes", Live: true, Show: func(ctx context.Context, r *Request) (*View, error) {
		nodes, err := r.Admin.Nodes(ctx)
		return &View{Title: "Nodes", Data: nodes}, err
	}})
	p.operation(op.RemoveNode, nil)
}
