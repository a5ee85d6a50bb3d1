package server

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
	"github.com/posthorn/posthorn/server/internal/in"
)

const (
	maxScanned = 10_000      // events that one statement of a search looks at
	searchTime = time.Second // after which a search that has found nothing returns
)

type searchInput struct {
	in.Namespace
	in.Page
	admin.EventFilter
	Accept string `header:"Accept" hidden:"true"`
}

type pageOutput struct {
	ContentType string `header:"Content-Type"`
	Link        string `header:"Link" doc:"The address of the next page, with rel=\"next\""`
	Body        any
}

func (s *Server) searching() {
	search := routeOf(op.SearchEvents)
	search.response = eventContent[list[eventView]](s, cloudEventsBatch)
	register(s, search, s.searchEvents)
}

func (s *Server) searchEvents(ctx context.Context, c caller, input *searchInput) (*pageOutput, error) {
	search := input.EventFilter
	search.Limit, search.MaxLooks = input.Page.Limit, maxScanned
	var err error
	if search.After, err = readCursor(input.Order, input.Cursor); err != nil {
		return nil, err
	}
	events, next, err := op.Until(searchTime, search.After, func(after int64) ([]admin.Event, int64, error) {
		search.After = after
		return s.admin(c).SearchEvents(ctx, search)
	})
	if err != nil {
		return nil, err
	}
	search.After = next
	views := make([]eventView, len(events))
	for i := range events {
		views[i] = viewOf(events[i])
	}
	return input.output(c, views, search)
}

func (i *searchInput) output(c caller, views []eventView, search admin.EventFilter) (*pageOutput, error) {
	next := ""
	if search.After != 0 {
		next = writeCursor(i.Order, search.After)
	}
	if !wantsCloudEvents(i.Accept) {
		return &pageOutput{ContentType: "application/json", Body: page(views, next).Body}, nil
	}
	batch, err := batchOf(c.namespace, views)
	output := &pageOutput{ContentType: cloudEventsBatch, Body: batch}
	if next != "" {
		output.Link = fmt.Sprintf(`<?%s>; rel="next"`, i.query(next).Encode())
	}
	return output, err
}

// query returns the query of the next page.
func (i *searchInput) query(cursor string) url.Values {
	query := url.Values{"cursor": {cursor}, "limit": {strconv.Itoa(i.Page.Limit)}}
	if i.Namespace.Namespace != "" {
		query.Set("namespace", i.Namespace.Namespace)
	}
	for _, f := range op.Fields(&i.EventFilter) {
		if text := f.Text(); text != "" {
			query.Set(f.Name, text)
		}
	}
	return query
}
