package page

import (
	"context"
	"net/http"

	"github.com/posthorn/posthorn/admin"
)

func (p *Pages) groups() {
	p.screen(Screen{Path: "groups", Live: true, Show: listGroups})
	p.action(Action{Path: "group/pause", Do: setPaused("pause")})
	p.action(Action{Path: "group/resume", Do: setPaused("resume")})
}

func listGroups(ctx context.Context, r *Request) (*View, error) {
	names, err := r.Admin.GroupNames(ctx, r.Value("name"), r.Value("after"), pageLength+1)
	if err != nil {
		return nil, err
	}
	names, more := pageOf(r, names, "after", func(name string) any { return name })
	groups, err := r.Admin.GroupsNamed(ctx, names)
	return &View{Title: "Groups", Data: struct {
		Groups []admin.GroupStatus
		Paging paging
	}{groups, more}}, err
}

func setPaused(verb string) func(context.Context, *Request) (string, string, error) {
	return func(ctx context.Context, r *Request) (string, string, error) {
		name := r.Value("name")
		err := r.Call(ctx, http.MethodPost, "/v1/groups/"+segment(name)+"/"+verb, nil, nil)
		return "", "Group " + name + ": " + verb + "d.", err
	}
}
