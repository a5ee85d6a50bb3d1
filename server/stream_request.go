package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/listen"
)

// streamParameters are the query parameters of a stream, with their descriptions.
var streamParameters = []struct{ name, description string }{
	{"type", "Patterns, any of which must match: order.* or order.>"},
	{"stream", "Names or patterns of streams, any of which must match"},
	{"key", "Keys, one of which the event must have"},
	{"tag", "Tags, all of which the event must have"},
	{"payload", "JSON that the payload must contain: {\"a\":1}"},
	{"from", "Where to begin: now (default), beginning, a time, or an id that the server has sent"},
	{"last_event_id", "The same as the header Last-Event-ID, for clients that cannot send it"},
	{"named", "true: events are named after their types. Default: message"},
	{"format", "json (default), or cloudevents for structured CloudEvents"},
	{"namespace", "The namespace. Default: that of the token, or of the server"},
}

func (s *Server) liveStream() {
	text := &huma.Schema{Type: huma.TypeString}
	parameters := []*huma.Param{{Name: "Last-Event-ID", In: "header", Description: "The id after which reading goes on", Schema: text}}
	for _, p := range streamParameters {
		parameters = append(parameters, &huma.Param{Name: p.name, In: "query", Description: p.description, Schema: text})
	}
	s.handle(operation{
		method: http.MethodGet, path: "/v1/stream", id: "stream-events", tag: "events",
		summary: "Follow events as server-sent events",
		description: "With Last-Event-ID set to the id of an event, reading goes on right after that event, so that none is lost. " +
			"Last-Event-ID takes precedence over from. " +
			"Besides events there are heartbeat, slow and bye, with an id to come back with.",
		scope:      scopeRead,
		parameters: parameters,
		response:   map[string]*huma.MediaType{"text/event-stream": {Schema: text}},
	}, s.serveStream)
}

// streamRequest is a parsed request for a stream.
type streamRequest struct {
	start       listen.Start
	named       bool // events are named after their types
	cloudEvents bool
}

// maxNames limits the names in a list of a filter.
const maxNames = 100

func parseStream(r *http.Request, buffer int) (request streamRequest, err error) {
	query := r.URL.Query() // checkAddress has refused invalid queries
	if err := checkParameters(query); err != nil {
		return request, err
	}
	request.start.Buffer = buffer
	filter := &request.start.Filter
	for name, list := range map[string]*[]string{
		"type": &filter.Types, "stream": &filter.Streams, "key": &filter.Keys, "tag": &filter.TagsAll,
	} {
		if *list, err = parseNames(name, query.Get(name)); err != nil {
			return request, err
		}
	}
	if request.named, err = parseFlag("named", query.Get("named")); err != nil {
		return request, err
	}
	if filter.Payload, err = parsePayload(query.Get("payload")); err != nil {
		return request, err
	}
	if request.cloudEvents, err = parseFormat(r.Header.Get("Accept"), query.Get("format")); err != nil {
		return request, err
	}
	return request, request.setStart(r.Header, query)
}

// lastEventIDOfPolyfills is the parameter in which polyfills of EventSource send the last
// event id.
const lastEventIDOfPolyfills = "lastEventId"

// checkParameters refuses unknown parameters: if a misspelt filter were ignored, every
// event would match.
func checkParameters(query url.Values) error {
	names := make([]string, len(streamParameters))
	for i, p := range streamParameters {
		names[i] = p.name
	}
	for name := range query {
		if !slices.Contains(names, name) && name != lastEventIDOfPolyfills {
			return badRequest(fmt.Sprintf("%.60q is not a parameter of /v1/stream", name), "Parameters are: "+strings.Join(names, ", ")+".")
		}
	}
	return nil
}

func parseNames(parameter, text string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	names := strings.Split(text, ",")
	if len(names) > maxNames {
		return nil, badRequest(fmt.Sprintf("%s has %d names", parameter, len(names)), fmt.Sprintf("Give at most %d.", maxNames))
	}
	return names, nil
}

func parseFlag(parameter, text string) (bool, error) {
	if text == "" {
		return false, nil
	}
	value, err := strconv.ParseBool(text)
	if err != nil {
		return false, badRequest(parameter+" is neither true nor false", "Leave it out for false.")
	}
	return value, nil
}

// parsePayload checks the JSON that the payload must contain.
func parsePayload(text string) (any, error) {
	if text == "" {
		return nil, nil
	}
	if !json.Valid([]byte(text)) {
		return nil, badRequest("payload is not valid JSON", `Send a document like {"a":1}, percent-encoded.`)
	}
	return json.RawMessage(text), nil
}

func parseFormat(accept, format string) (cloudEvents bool, err error) {
	switch format {
	case "":
		return wantsCloudEvents(accept), nil
	case "json":
		return false, nil
	case "cloudevents":
		return true, nil
	}
	return false, badRequest("format is neither json nor cloudevents", "Leave it out for json.")
}

// setStart sets where the stream begins: after the last event that the reader has
// received, if it names one. The header wins over the parameters: a browser that
// reconnects sends the header with the last event and the parameters of its first
// connection.
func (request *streamRequest) setStart(header http.Header, query url.Values) error {
	for _, last := range []string{header.Get("Last-Event-ID"), query.Get("last_event_id"), query.Get(lastEventIDOfPolyfills)} {
		if last != "" {
			return request.after(last, "the last event id is not valid", "Send an id that the server has sent, unchanged.")
		}
	}
	switch from := query.Get("from"); from {
	case "", "now":
	case "beginning":
		request.start.From = posthorn.Beginning
	default:
		// A plus sign that is not percent-encoded arrives as a space.
		at, err := time.Parse(time.RFC3339, strings.Replace(from, " ", "+", 1))
		if err != nil {
			return request.after(from, "from is not a position in the log",
				"Use now, beginning, a time like 2026-01-31T09:00:00Z, or an id that the server has sent, unchanged.")
		}
		request.start.From = posthorn.At(at)
	}
	return nil
}

var cursorText = regexp.MustCompile(`^[A-Za-z0-9_-]{20,}(\.[0-9]{1,18})?$`)

func (request *streamRequest) after(cursor, detail, hint string) error {
	if !cursorText.MatchString(cursor) {
		return badRequest(detail, hint)
	}
	request.start.Cursor = cursor
	return nil
}
