package page

import (
	"context"

	"github.com/posthorn/posthorn/admin"
)

func (p *Pages) streams() {
	p.screen(Screen{Path: "streams", Show: listStreams})
	p.screen(Screen{Path: "stream", Under: "streams", Show: showStream})
	p.action(Action{Path: "stream/rotate", Do: func(ctx context.Context, r *Request) (string, string, error) {
		name := r.Value("name")
		return "", "The next message of stream " + name + " gets a new key.", r.Admin.RotateStreamKey(ctx, name)
	}})
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
	name := r.Value("name")
	stream, err := r.Admin.Stream(ctx, name)
	if err != nil {
		return nil, err
	}
	keys, err := r.Admin.StreamKeys(ctx, name)
	return &View{Title: "Stream " + name, Data: struct {
		Stream admin.Stream
		Keys   []admin.StreamKey
	}{stream, keys}}, err
}
