package page

import (
	"context"
	"time"

	"github.com/posthorn/posthorn/op"
)

func (p *Pages) seek() {
	p.act(op.SeekGroup, func(r *Request, _ any) string { return linkToGroup("name")(r) })
	p.screen(Screen{Path: "group/seek", Under: "groups", Scope: string(op.Admin), Show: askSeek})
}

// linkToGroup returns the link of the page of the group that a field of a form names.
func linkToGroup(field string) func(r *Request) string {
	return func(r *Request) string { return r.Link("group", "name", r.Value(field)) }
}

// askSeek asks before a group is moved, with what that would do: to the beginning, the end,
// or the time in the field at.
func askSeek(ctx context.Context, r *Request) (*View, error) {
	in := &op.SeekInput{ByName: op.ByName{Name: r.Value("name")}}
	if in.Body.To = r.Value("to"); in.Body.To == "" {
		at, err := r.Time("at")
		if err == nil && at.IsZero() {
			err = invalid("the time is missing", "Choose the beginning, the end, or a time.")
		}
		if err != nil {
			return nil, err
		}
		in.Body.To = at.Format(time.RFC3339)
	}
	return askBefore(ctx, r, op.SeekGroup, in)
}
