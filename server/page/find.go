package page

import (
	"context"
	"strconv"
	"strings"

	"github.com/posthorn/posthorn/admin"
)

func (p *Pages) find() {
	p.screen(Screen{Path: "find", Show: findAnything})
}

// hit is a thing that the search box has found.
type hit struct{ Kind, Name, Link string }

// mostHits bounds the list of each kind of thing.
const mostHits = 20

// findAnything looks for a number among events, jobs and dead letters, and for a text
// in the names of groups.
func findAnything(ctx context.Context, r *Request) (*View, error) {
	q := strings.TrimSpace(r.Value("q"))
	var hits []hit
	if id, err := strconv.ParseInt(strings.TrimPrefix(q, "#"), 10, 64); err == nil && id > 0 {
		found, err := findNumber(ctx, r, id)
		if err != nil {
			return nil, err
		}
		hits = append(hits, found...)
	}
	if q != "" {
		groups, err := r.Admin.GroupNames(ctx, q, "", mostHits)
		if err != nil {
			return nil, err
		}
		for _, name := range groups {
			hits = append(hits, hit{"group", name, r.Link("group", "name", name)})
		}
	}
	return &View{Title: "Find", Data: struct {
		Q    string
		Hits []hit
	}{q, hits}}, nil
}

func findNumber(ctx context.Context, r *Request, id int64) ([]hit, error) {
	var hits []hit
	e, err := r.Admin.Event(ctx, id)
	if err == nil {
		hits = append(hits, hit{"event", strconv.FormatInt(id, 10) + " " + e.Type, r.Link("event", "id", id)})
	} else if !r.isMissing(ctx, err) {
		return nil, err
	}
	j, err := r.Admin.Job(ctx, id)
	if err == nil {
		hits = append(hits, hit{"job", strconv.FormatInt(id, 10) + " " + j.Title, r.Link("job", "id", id)})
	} else if !r.isMissing(ctx, err) {
		return nil, err
	}
	for letter, err := range r.Admin.DeadLetters(ctx, admin.DeadLetterFilter{IDs: []int64{id}}) {
		if err != nil {
			return nil, err
		}
		hits = append(hits, hit{"dead letter", strconv.FormatInt(id, 10) + " " + letter.Type, r.Link("dead-letter", "id", id)})
	}
	return hits, nil
}
