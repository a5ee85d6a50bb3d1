package page

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/posthorn/posthorn/admin"
)

func (p *Pages) event() {
	p.screen(Screen{Path: "event", Under: "events", Live: true, Show: showEvent})
}

// mostSettled bounds how many groups that have finished with an event are listed.
const mostSettled = 20

// eventPage is an event as its template shows it.
type eventPage struct {
	admin.Event
	Trace    string
	Outcomes []eventOutcome // of groups that are not finished with it, and of the first that are
	Done     int            // groups that are finished, or have passed it over, and are not listed
}

// eventOutcome is the state of the event in a group, with its story.
type eventOutcome struct {
	admin.Outcome
	Story []admin.Chapter
}

// Open tells whether something is still owed, or was lost.
func (o eventOutcome) Open() bool {
	return o.State != admin.Completed && o.State != admin.PassedOver
}

// Class is the colour of the state.
func (o eventOutcome) Class() string {
	switch o.State {
	case admin.Dead, admin.CompletedWithErrors:
		return "bad"
	case admin.Retrying:
		return "warn"
	case admin.Completed:
		return "good"
	}
	return "soft"
}

func showEvent(ctx context.Context, r *Request) (*View, error) {
	id, err := r.Number("id")
	if err != nil {
		return nil, err
	}
	page := eventPage{}
	if page.Event, err = r.Admin.Event(ctx, id); err != nil {
		return nil, err
	}
	outcomes, err := r.Admin.Outcomes(ctx, id)
	if err != nil {
		return nil, err
	}
	story, err := r.Admin.EventStory(ctx, id)
	if err != nil {
		return nil, err
	}
	page.add(outcomes, story)
	page.Trace = traceOf(page.Metadata)
	return &View{Title: fmt.Sprintf("Event %d", id), Data: page}, nil
}

// add takes outcomes in: all that are open, and some of the others.
func (e *eventPage) add(outcomes []admin.Outcome, story []admin.EventChapter) {
	told := map[[2]string][]admin.Chapter{}
	for _, c := range story {
		key := [2]string{c.Group, c.Subscription}
		told[key] = append(told[key], c.Chapter)
	}
	var settled []eventOutcome
	for _, o := range outcomes {
		one := eventOutcome{o, told[[2]string{o.Group, o.Subscription}]}
		if one.Open() {
			e.Outcomes = append(e.Outcomes, one)
		} else {
			settled = append(settled, one)
		}
	}
	listed := settled[:min(len(settled), mostSettled)]
	e.Outcomes, e.Done = append(e.Outcomes, listed...), len(settled)-len(listed)
}

// traceOf is the id of the trace in which an event was published, "" for none.
func traceOf(metadata json.RawMessage) string {
	var m struct {
		TraceParent string `json:"traceparent"`
	}
	if json.Unmarshal(metadata, &m) != nil || len(m.TraceParent) < 36 {
		return ""
	}
	return m.TraceParent[3:35]
}
