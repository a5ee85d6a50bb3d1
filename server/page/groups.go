package page

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/posthorn/posthorn/admin"
)

func (p *Pages) groups() {
	p.screen(Screen{Path: "groups", Live: true, Show: listGroups})
	p.group()
	p.seek()
}

// groupsPage is the list as its template shows it.
type groupsPage struct {
	Groups   []admin.GroupStatus
	Matching int64 // of which the page shows a part
	Sort     string
	Paging   paging
}

func listGroups(ctx context.Context, r *Request) (*View, error) {
	page := groupsPage{Sort: cmp.Or(r.Value("sort"), "name")}
	after, err := rankOf(r.Value("after"))
	if err != nil {
		return nil, err
	}
	ranked, err := r.Admin.RankGroups(ctx, r.Value("name"), page.Sort, after, pageLength+1)
	if err != nil {
		return nil, err
	}
	if len(ranked) > 0 {
		page.Matching = ranked[0].Matching
	}
	ranked, page.Paging = pageOf(r, ranked, "after", func(g admin.RankedGroup) any {
		return strconv.FormatFloat(g.Rank, 'f', -1, 64) + " " + g.Group
	})
	var names []string
	for _, g := range ranked {
		names = append(names, g.Group)
	}
	page.Groups, err = r.Admin.GroupsNamed(ctx, names)
	slices.SortFunc(page.Groups, func(a, b admin.GroupStatus) int {
		return cmp.Compare(slices.Index(names, a.Group), slices.Index(names, b.Group))
	})
	return &View{Title: "Groups", Data: page}, err
}

// rankOf reads the place behind which a list goes on: a number and a name.
func rankOf(text string) (after admin.RankedGroup, err error) {
	if text == "" {
		return after, nil
	}
	number, name, _ := strings.Cut(text, " ")
	after.Group = name
	if after.Rank, err = strconv.ParseFloat(number, 64); err != nil || name == "" {
		return after, invalid(fmt.Sprintf("after is no place in the list: %q", text), "Begin at the first page.")
	}
	return after, nil
}
