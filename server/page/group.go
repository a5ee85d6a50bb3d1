package page

import (
	"context"
	"html/template"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func (p *Pages) group() {
	p.screen(Screen{Path: "group", Under: "groups", Live: true, Show: showGroup})
	for _, o := range []op.Any{op.PauseGroup, op.ResumeGroup} {
		p.operation(o, nil)
	}
	p.operation(op.DefineGroup, linkToGroup("name"))
	p.operation(op.DeleteGroup, func(r *Request) string { return r.Link("groups") })
	p.operation(op.PutSubscription, linkToGroup("group"))
	p.operation(op.DeleteSubscription, linkToGroup("group"))
}

// linkToGroup returns the link of the page of the group that a field of a form names.
func linkToGroup(field string) func(r *Request) string {
	return func(r *Request) string { return r.Link("group", "name", r.Value(field)) }
}

// someWork bounds lists of leases and retries on the page of a group.
const someWork = 20

// groupPage is a group as its template shows it.
type groupPage struct {
	admin.GroupStatus
	Kind          string
	Policy        admin.GroupPolicy
	Readers       []admin.GroupReader
	Work          []admin.GroupLease
	Failing       []admin.GroupRetry
	Subscriptions []admin.SubscriptionStatus
	reasons
	lags []admin.GroupLag
}

func showGroup(ctx context.Context, r *Request) (*View, error) {
	name := r.Value("name")
	g := groupPage{}
	var err error
	for _, look := range []func() error{
		func() error { g.GroupStatus, err = r.Admin.Group(ctx, name); return err },
		func() error { g.Kind, err = r.Admin.GroupKind(ctx, name); return err },
		func() error { g.Policy, err = r.Admin.GroupPolicy(ctx, name); return err },
		func() error { g.Readers, err = r.Admin.GroupReaders(ctx, name); return err },
		func() error { g.Work, err = r.Admin.GroupLeases(ctx, name, someWork); return err },
		func() error { g.Subscriptions, err = r.Admin.Subscriptions(ctx, name); return err },
		func() error { return g.find(ctx, r, name) },
		func() error { g.lags, err = r.Admin.GroupLags(ctx, name); return err },
		func() error { g.Failing, err = r.Admin.GroupRetries(ctx, name, someWork); return err },
	} {
		if err := look(); err != nil {
			return nil, err
		}
	}
	return &View{Title: "Group " + name, Data: g}, nil
}

// Movable reports whether seek can move the group: others never skip an event, and never
// read one twice.
func (g groupPage) Movable() bool { return g.Kind == "group" || g.Kind == "relay" }

// LagChart draws how far the group was behind in the last hours.
func (g groupPage) LagChart() template.HTML {
	if len(g.lags) < 2 {
		return ""
	}
	points := make([]float64, len(g.lags))
	for i, l := range g.lags {
		points[i] = l.LagSeconds
	}
	return line54(points, "chart", "how far it was behind in the last hours: "+period(g.LagSeconds)+" now")
}

// Filter says that dead letters of the group are meant.
func (g groupPage) Filter() []any { return []any{"group", g.Group} }
