package page

import (
	"context"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func (p *Pages) events() {
	p.screen(Screen{Path: "events", Live: true, Show: listEvents})
	p.event()
	p.publish()
}

// A search looks at so many events in one statement, and goes on for so long until it
// has found something.
const (
	looksAtOnce = 5000
	searchFor   = 150 * time.Millisecond
)

// eventFields are the parameters of a search.
var eventFields = op.Forms(&admin.EventFilter{})

// eventsPage is the list of events as its template shows it.
type eventsPage struct {
	Events []admin.BriefEvent
	Narrow bool // a filter is given
	Paging paging
	Short  bool // there may be more, behind those that were looked at
	Search further
	Tail   bool // new events come to the list
}

func listEvents(ctx context.Context, r *Request) (*View, error) {
	f, wrong := eventFilter(r)
	page := eventsPage{Narrow: len(r.Filter(eventFields...)) > 0, Tail: f.After == 0 && f.Before.IsZero()}
	var found []admin.BriefEvent
	var next int64
	if wrong == nil {
		found, next, wrong = op.Until(searchFor, f.After, func(after int64) ([]admin.BriefEvent, int64, error) {
			f.After = after
			return r.Admin.BrowseEvents(ctx, f)
		})
	}
	if problem, err := r.inForm(ctx, wrong); problem != nil || err != nil {
		return &View{Title: "Events", Problem: problem, Data: page}, err
	}
	page.Events = found
	page.Short = next != 0 && len(page.Events) < pageLength
	if next != 0 {
		page.Paging.Next = r.Same("after", next)
		page.Search = further{Link: page.Paging.Next, At: next, GoesOn: len(page.Events) == 0}
	}
	if r.Value("after") != "" {
		page.Paging.First = r.Same("after", "")
	}
	return &View{Title: "Events", Data: page}, nil
}

// eventFilter reads the parameters of a search.
func eventFilter(r *Request) (f admin.EventFilter, err error) {
	f = admin.EventFilter{Limit: pageLength, MaxLooks: looksAtOnce}
	if f.After, err = r.optionalNumber("after"); err != nil {
		return f, err
	}
	return f, r.Fill(&f)
}
