package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/server/internal/in"
)

const (
	maxScanned = 10_000      // events that one statement of a search looks at
	searchTime = time.Second // after which a search that has found nothing returns
)

type searchInput struct {
	in.Namespace
	in.Page
	Type    []string  `query:"type" doc:"Patterns, any of which must match: order.* or order.>"`
	Stream  []string  `query:"stream" doc:"Names or patterns of streams, any of which must match"`
	Key     string    `query:"key"`
	Tag     []string  `query:"tag" doc:"Tags, all of which the event must have"`
	Payload string    `query:"payload" doc:"JSON that the payload must contain. Events of confidential streams do not match" example:"{\"a\":1}"`
	From    time.Time `query:"from" doc:"Events that were published at this time or later"`
	Before  time.Time `query:"before" doc:"Events that were published before this time"`
	Order   string    `query:"order" enum:"newest,oldest" default:"newest" doc:"The events that come first"`
	Accept  string    `header:"Accept" hidden:"true"`
}

type pageOutput struct {
	ContentType string `header:"Content-Type"`
	Link        string `header:"Link" doc:"The address of the next page, with rel=\"next\""`
	Body        any
}

func (s *Server) searching() {
	register(s, operation{
		method: http.MethodGet, path: "/v1/events", id: "search-events", tag: "events",
		summary: "Search events",
		description: "A request looks at a limited number of events, so a page may be short, or empty, if few of them match. " +
			"As long as the response has next, there may be more. Accept: application/cloudevents-batch+json returns CloudEvents, and the next page in Link.",
		scope:    scopeRead,
		response: eventContent[list[eventView]](s, cloudEventsBatch),
	}, s.searchEvents)
}

func (s *Server) searchEvents(ctx context.Context, c caller, input *searchInput) (*pageOutput, error) {
	search, err := input.search()
	if err != nil {
		return nil, err
	}
	var events []admin.Event
	for began := time.Now(); ; {
		events, search.After, err = s.admin(c).SearchEvents(ctx, search)
		if err != nil {
			return nil, err
		}
		if len(events) > 0 || search.After == 0 || time.Since(began) > searchTime {
			break
		}
	}
	views := make([]eventView, len(events))
	for i := range events {
		views[i] = viewOf(events[i])
	}
	return input.output(c, views, search)
}

func (i *searchInput) search() (admin.EventFilter, error) {
	search := admin.EventFilter{From: i.From, Before: i.Before, OldestFirst: i.Order == "oldest", Limit: i.Limit, MaxLooks: maxScanned}
	filter := map[string]any{}
	if len(i.Type) > 0 {
		filter["type"] = i.Type
	}
	if len(i.Stream) > 0 {
		filter["stream"] = i.Stream
	}
	if i.Key != "" {
		filter["key"] = i.Key
	}
	if len(i.Tag) > 0 {
		filter["tags_all"] = i.Tag
	}
	if i.Payload != "" {
		if !json.Valid([]byte(i.Payload)) {
			return search, badRequest("payload is not valid JSON", `Send a document like {"a":1}, percent-encoded.`)
		}
		filter["payload"] = json.RawMessage(i.Payload)
	}
	var err error
	if search.Filter, err = json.Marshal(filter); err != nil {
		return search, err
	}
	search.After, err = readCursor(i.Order, i.Cursor)
	return search, err
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
	query := url.Values{"cursor": {cursor}, "limit": {strconv.Itoa(i.Limit)}, "order": {i.Order}}
	for name, value := range map[string]string{
		"namespace": i.Namespace.Namespace, "type": strings.Join(i.Type, ","), "stream": strings.Join(i.Stream, ","),
		"key": i.Key, "tag": strings.Join(i.Tag, ","), "payload": i.Payload,
	} {
		if value != "" {
			query.Set(name, value)
		}
	}
	for name, value := range map[string]time.Time{"from": i.From, "before": i.Before} {
		if !value.IsZero() {
			query.Set(name, value.Format(time.RFC3339Nano))
		}
	}
	return query
}
