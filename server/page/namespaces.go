package page

import (
	"context"
	"slices"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func (p *Pages) namespacePages() {
	p.screen(Screen{Path: "namespaces", Show: listNamespaces})
	back := func(r *Request) string { return r.Link("namespaces") }
	p.operation(op.DefineNamespace, back)
	p.operation(op.CloseNamespace, back)
	p.operation(op.OpenNamespace, back)
	p.operation(op.DeleteNamespace, back)
}

func listNamespaces(ctx context.Context, r *Request) (*View, error) {
	all, err := r.Admin.Namespaces(ctx)
	if err != nil {
		return nil, err
	}
	after := r.Value("after")
	all = slices.DeleteFunc(all, func(n admin.Namespace) bool { return n.Name <= after })
	shown, more := pageOf(r, all[:min(len(all), pageLength+1)], "after", func(n admin.Namespace) any { return n.Name })
	return &View{Title: "Namespaces", Data: struct {
		Namespaces []admin.Namespace
		Paging     paging
	}{shown, more}}, nil
}

// mostNamespaces bounds the list of namespaces to choose from. With more, people change
// the address.
const mostNamespaces = 200

// allNamespaces lists the namespaces that the caller may look at.
func (p *Pages) allNamespaces(ctx context.Context, c Caller) ([]string, error) {
	if c.Bound {
		return []string{c.Namespace}, nil
	}
	return p.namespaces.Get(ctx, "", func(ctx context.Context) ([]string, time.Time, error) {
		found, err := c.Admin.Namespaces(ctx)
		var names []string
		for _, n := range found[:min(len(found), mostNamespaces)] {
			names = append(names, n.Name)
		}
		return names, time.Now().Add(5 * time.Second), err
	})
}
