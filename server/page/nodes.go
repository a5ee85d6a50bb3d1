package page

import (
	"context"
	"net/http"
)

func (p *Pages) nodes() {
	p.screen(Screen{Path: "nodes", Live: true, Show: func(ctx context.Context, r *Request) (*View, error) {
		nodes, err := r.Admin.Nodes(ctx)
		return &View{Title: "Nodes", Data: nodes}, err
	}})
	p.action(Action{Path: "node/remove", Do: func(ctx context.Context, r *Request) (string, string, error) {
		id := r.Value("id")
		err := r.Call(ctx, http.MethodDelete, "/v1/nodes/"+segment(id), nil, nil)
		return "", "Node " + id + " is removed; its leases are free.", err
	}})
}
