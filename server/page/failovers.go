package page

import (
	"context"
	"strconv"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

// failovers are the pages of failovers, crashes and restores. Relays find what each has lost, so they
// are below relays in the navigation.
func (p *Pages) failovers() {
	p.screen(Screen{Path: "failovers", Under: "relays", Live: true, Show: listFailovers})
	p.screen(Screen{Path: "failover", Under: "relays", Live: true, Show: showFailover})
	p.operation(op.BringBackFailover, func(r *Request) string { return r.Link("failover", "id", r.Value("id")) })
}

func listFailovers(ctx context.Context, r *Request) (*View, error) {
	all, err := r.Admin.Failovers(ctx)
	return &View{Title: "Failovers", Data: all}, err
}

// showFailover shows the first lost events only: their payloads may be large.
func showFailover(ctx context.Context, r *Request) (*View, error) {
	id, err := r.Number("id")
	if err != nil {
		return nil, err
	}
	var d op.FailoverDetails
	if d.Failover, err = r.Admin.Failover(ctx, id); err != nil {
		return nil, err
	}
	d.Events, err = r.Admin.LostEvents(ctx, id, pageLength)
	return &View{Title: "Failover " + strconv.FormatInt(id, 10), Data: failoverPage{d}}, err
}

type failoverPage struct{ op.FailoverDetails }

// Left is the number of lost events that are not back.
func (f failoverPage) Left() int64 { return f.Lost - f.BroughtBack }

// More is the number of lost events that the page does not show.
func (f failoverPage) More() int64 { return f.Lost - int64(len(f.Events)) }

// failoverButtons are those of a finding about a failover that has lost events.
func failoverButtons(f admin.Finding) []ask {
	if f.Subject == "" || f.Size == 0 {
		return nil
	}
	return []ask{{"failover/bring-back", "Bring back…", []any{"id", f.Subject}}}
}
