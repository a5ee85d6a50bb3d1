package page

import (
	"context"
	"encoding/json"
	"time"

	"github.com/posthorn/posthorn/admin"
)

// pageLength is the number of rows of a list.
const pageLength = 50

// quietAction: an action that has touched nothing for so long has lost its server.
const quietAction = 2 * time.Minute

func (p *Pages) audit() {
	p.screen(Screen{Path: "audit", Live: true, Show: listActions})
	p.screen(Screen{Path: "action", Under: "audit", Live: true, Show: showAction})
}

type actionRow struct {
	admin.Action
	Arguments []parameter
}

// Goes tells whether the action is under way.
func (a actionRow) Goes() bool { return a.EndedAt.IsZero() }

// Lost tells whether the server that made the action has gone.
func (a actionRow) Lost() bool { return a.Goes() && time.Since(a.MovedAt) > quietAction }

// Percent is how far the action is.
func (a actionRow) Percent() int64 {
	if a.Expected == nil || *a.Expected == 0 {
		return 0
	}
	return min(100, 100*a.Done / *a.Expected)
}

func rowOf(a admin.Action) actionRow {
	row := actionRow{Action: a}
	var arguments map[string]json.RawMessage
	if json.Unmarshal(a.Detail, &arguments) == nil {
		for _, name := range sortedKeys(arguments) {
			row.Arguments = append(row.Arguments, parameter{name, jsonText(arguments[name])})
		}
	}
	return row
}

func listActions(ctx context.Context, r *Request) (*View, error) {
	before, err := r.optionalNumber("before")
	if err != nil {
		return nil, err
	}
	actions, err := r.Admin.Actions(ctx, before, pageLength+1)
	if err != nil {
		return nil, err
	}
	rows, more := pageOf(r, actions, "before", func(a admin.Action) any { return a.ID })
	var all []actionRow
	for _, a := range rows {
		all = append(all, rowOf(a))
	}
	return &View{Title: "Audit log", Data: struct {
		Actions []actionRow
		Paging  paging
	}{all, more}}, nil
}

func showAction(ctx context.Context, r *Request) (*View, error) {
	id, err := r.Number("id")
	if err != nil {
		return nil, err
	}
	a, err := r.Admin.Action(ctx, id)
	return &View{Title: "Action " + a.Name, Data: rowOf(a)}, err
}
