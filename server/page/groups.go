package page

import (
	"context"

	"github.com/posthorn/posthorn/admin"
)

func (p *Pages) groups() {
	p.screen(Screen{Path: "groups", Live: true, Show: listGroups})
	p.group()
	p.seek()
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
