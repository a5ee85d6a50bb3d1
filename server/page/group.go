package page

import (
	"context"

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
	rates  []admin.GroupRate
	Charts []chart
}

func showGroup(ctx context.Context, r *Request) (*View, error) {
	name := r.Value("name")
	g := groupPage{}
	span, err := r.span()
	if err != nil {
		return nil, err
	}
	for _, look := range []func() error{
		func() error { g.GroupStatus, err = r.Admin.Group(ctx, name); return err },
		func() error { g.Kind, err = r.Admin.GroupKind(ctx, name); return err },
		func() error { g.Policy, err = r.Admin.GroupPolicy(ctx, name); return err },
		func() error { g.Readers, err = r.Admin.GroupReaders(ctx, name); return err },
		func() error { g.Work, err = r.Admin.GroupLeases(ctx, name, someWork); return err },
		func() error { g.Subscriptions, err = r.Admin.Subscriptions(ctx, name); return err },
		func() error { return g.find(ctx, r, name) },
		func() error { g.rates, err = r.Admin.GroupRates(ctx, name, span.period, span.intervals); return err },
		func() error { g.Failing, err = r.Admin.GroupRetries(ctx, name, someWork); return err },
	} {
		if err := look(); err != nil {
			return nil, err
		}
	}
	g.Charts = groupCharts(span, g.rates)
	return &View{Title: "Group " + name, Data: g}, nil
}

// Movable reports whether seek can move the group: others never skip an event, and never
// read one twice.
func (g groupPage) Movable() bool { return g.Kind == "group" || g.Kind == "relay" }

// Filter says that dead letters of the group are meant.
func (g groupPage) Filter() []any { return []any{"group", g.Group} }
