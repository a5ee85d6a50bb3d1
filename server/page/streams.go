package page

import (
	"context"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func (p *Pages) streams() {
	p.screen(Screen{Path: "streams", Show: listStreams})
	p.screen(Screen{Path: "stream", Under: "streams", Show: showStream})
	p.operation(op.RotateStreamKey, nil)
	p.operation(op.SetStreamPolicy, func(r *Request) string { return r.Link("stream", "name", r.Value("name")) })
}

func listStreams(ctx context.Context, r *Request) (*View, error) {
	streams, err := r.Admin.Streams(ctx, admin.StreamFilter{After: r.Value("after"), Limit: pageLength + 1})
	if err != nil {
		return nil, err
	}
	streams, more := pageOf(r, streams, "after", func(s admin.Stream) any { return s.Name })
	return &View{Title: "Streams", Data: struct {
		Streams []admin.Stream
		Paging  paging
	}{streams, more}}, nil
}

func showStream(ctx context.Context, r *Request) (*View, error) {
	d, err := op.GetStream.Call(ctx, r.Admin, &op.ByName{Name: r.Value("name")})
	return &View{Title: "Stream " + d.Name, Data: d}, err
}
