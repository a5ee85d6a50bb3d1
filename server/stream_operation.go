package server

import (
	"net/http"

	"github.com/danielgtaylor/huma/v2"
)

// streamParameters are those that a stream takes, and what they mean.
var streamParameters = []struct{ name, means string }{
	{"type", "Patterns, any of which must match: order.* or order.>"},
	{"stream", "Names or patterns of streams, any of which must match"},
	{"key", "Keys, any of which it may have"},
	{"tag", "Tags that it must have, all of them"},
	{"payload", "JSON that the payload must contain: {\"a\":1}"},
	{"from", "Where to begin: now (default), beginning, a time, or an id that a stream has sent"},
	{"last_event_id", "The same as the header Last-Event-ID, for clients that cannot send it"},
	{"named", "true: events are called like their types, not message"},
	{"format", "json (default), or cloudevents for structured CloudEvents"},
	{"namespace", "The namespace. Default: the token's, or the server's. A token has one."},
}

func documentParameters() []*huma.Param {
	text := &huma.Schema{Type: huma.TypeString}
	parameters := []*huma.Param{{Name: "Last-Event-ID", In: "header", Description: "Goes on after the event with this id", Schema: text}}
	for _, p := range streamParameters {
		parameters = append(parameters, &huma.Param{Name: p.name, In: "query", Description: p.means, Schema: text})
	}
	return parameters
}

func (s *Server) liveStream() {
	s.handle(operation{
		method: http.MethodGet, path: "/v1/stream", id: "stream-events", tag: "events",
		summary: "Events as they are published, as server-sent events",
		description: "The id of each event goes on right after it: with Last-Event-ID, which wins over from, nothing is lost. " +
			"Besides events there are heartbeat, slow and bye, with the id to come back with.",
		scope:      scopeRead,
		parameters: documentParameters(),
		response:   map[string]*huma.MediaType{"text/event-stream": {Schema: &huma.Schema{Type: huma.TypeString}}},
	}, s.serveStream)
}
