package server

import (
	"context"
	"encoding/base64"
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

// A search looks at so many events in one statement, and goes on for so long
// until it has found something.
const (
	looksPerCall = 10000
	searchFor    = time.Second
)

type searchInput struct {
	in.Namespace
	in.Page
	Type    []string  `query:"type" doc:"Patterns, any of which must match: order.* or order.>"`
	Stream  []string  `query:"stream" doc:"Names or patterns of streams, any of which must match"`
	Key     string    `query:"key"`
	Tag     []string  `query:"tag" doc:"Tags that it must have, all of them"`
	Payload string    `query:"payload" doc:"JSON that the payload must contain; those of confidential streams are not looked into" example:"{\"a\":1}"`
	From    time.Time `query:"from" doc:"Published at that time or later"`
	Before  time.Time `query:"before" doc:"Published before that time"`
	Order   string    `query:"order" enum:"newest,oldest" default:"newest" doc:"Which come first"`
	Accept  string    `header:"Accept" hidden:"true"`
}

type pageOutput struct {
	ContentType string `header:"Content-Type"`
	Link        string `header:"Link" doc:"The next page, with rel=\"next\""`
	Body        any
}

func (s *Server) searching() {
	register(s, operation{
		method: http.MethodGet, path: "/v1/events", id: "search-events", tag: "events",
		summary: "Events by what is in them",
		description: "A page may be short, or empty, where few events match: the search looks at a bounded number of events at a time. " +
			"As long as there is next, there may be more. Accept: application/cloudevents-batch+json returns CloudEvents, and the next page in Link.",
		scope:    scopeRead,
		response: eventContent[list[eventView]](s, cloudEventsBatch),
	}, s.searchEvents)
}

func (s *Server) searchEvents(ctx context.Context, c caller, input *searchInput) (*pageOutput, error) {
	search, err := input.search()
	if err != nil {
		return nil, err
	}
	search.NotStreams = c.hidden
	var events []admin.Event
	for began := time.Now(); ; {
		events, search.After, err = s.admin(c).SearchEvents(ctx, search)
		if err != nil {
			return nil, err
		}
		if len(events) > 0 || search.After == 0 || time.Since(began) > searchFor {
			break
		}
	}
	views := make([]eventView, len(events))
	for i := range events {
		views[i] = viewOf(events[i])
	}
	return input.answer(c, views, search)
}

func (i *searchInput) search() (admin.EventFilter, error) {
	search := admin.EventFilter{From: i.From, Before: i.Before, OldestFirst: i.Order == "oldest", Limit: i.Limit, MaxLooks: looksPerCall}
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
			return search, badRequest("payload is not valid JSON", `It looks like {"a":1}, percent-encoded.`)
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

func (i *searchInput) answer(c caller, views []eventView, search admin.EventFilter) (*pageOutput, error) {
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

// query is what asks for the next page.
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

// A cursor is what kind it is, and an id. Clients are not to look into it.
func writeCursor(kind string, id int64) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%s %d", kind, id))
}

// readCursor returns 0 for none.
func readCursor(kind, cursor string) (int64, error) {
	if cursor == "" {
		return 0, nil
	}
	raw, err := base64.RawURLEncoding.DecodeString(cursor)
	if err == nil {
		if number, ok := strings.CutPrefix(string(raw), kind+" "); ok {
			if id, err := strconv.ParseInt(number, 10, 64); err == nil && id > 0 {
				return id, nil
			}
		}
	}
	return 0, badRequest("the cursor is none of this list", "Give next of the page before, with the same parameters.")
}
