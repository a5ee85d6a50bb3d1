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

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/listen"
)

// streamRequest is what a reader of a stream asks for.
type streamRequest struct {
	start       listen.Start
	named       bool // events are called like their types
	cloudEvents bool
}

// maxNames is how many names a list of a filter may have.
const maxNames = 100

func parseStream(r *http.Request, buffer int) (ask streamRequest, err error) {
	query := r.URL.Query() // has been checked
	if err := checkParameters(query); err != nil {
		return ask, err
	}
	ask.start.Buffer = buffer
	filter := &ask.start.Filter
	for name, list := range map[string]*[]string{
		"type": &filter.Types, "stream": &filter.Streams, "key": &filter.Keys, "tag": &filter.TagsAll,
	} {
		if *list, err = parseNames(name, query.Get(name)); err != nil {
			return ask, err
		}
	}
	if ask.named, err = parseFlag("named", query.Get("named")); err != nil {
		return ask, err
	}
	if filter.Payload, err = parsePayload(query.Get("payload")); err != nil {
		return ask, err
	}
	if ask.cloudEvents, err = parseFormat(r.Header.Get("Accept"), query.Get("format")); err != nil {
		return ask, err
	}
	return ask, ask.from(r.Header, query)
}

// lastEventIDOfPolyfills is how they call last_event_id if nobody tells them.
const lastEventIDOfPolyfills = "lastEventId"

// checkParameters refuses what is not known: a filter that is misspelt must not
// let everything pass.
func checkParameters(query url.Values) error {
	names := make([]string, len(streamParameters))
	for i, p := range streamParameters {
		names[i] = p.name
	}
	for name := range query {
		if !slices.Contains(names, name) && name != lastEventIDOfPolyfills {
			return badRequest(fmt.Sprintf("%.60q is no parameter of a stream", name), "These are: "+strings.Join(names, ", ")+".")
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

// parsePayload reads what the payload must contain.
func parsePayload(text string) (any, error) {
	if text == "" {
		return nil, nil
	}
	if !json.Valid([]byte(text)) {
		return nil, badRequest("payload is not valid JSON", `It looks like {"a":1}, percent-encoded.`)
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

// from finds out where to begin: after the last event that the reader has seen,
// if it says so. The header is from the last connection of a browser, a
// parameter may be from its first.
func (ask *streamRequest) from(header http.Header, query url.Values) error {
	for _, last := range []string{header.Get("Last-Event-ID"), query.Get("last_event_id"), query.Get(lastEventIDOfPolyfills)} {
		if last != "" {
			return ask.after(last, "the last event id is none", "Send an id that a stream has sent, unchanged.")
		}
	}
	switch from := query.Get("from"); from {
	case "", "now":
	case "beginning":
		ask.start.From = posthorn.Beginning
	default:
		// A plus sign that is not percent-encoded arrives as a space.
		at, err := time.Parse(time.RFC3339, strings.Replace(from, " ", "+", 1))
		if err != nil {
			return ask.after(from, "from is no place in the log",
				"Use now, beginning, a time like 2026-01-31T09:00:00Z, or an id that a stream has sent, unchanged.")
		}
		ask.start.From = posthorn.At(at)
	}
	return nil
}

var cursorText = regexp.MustCompile(`^[A-Za-z0-9_-]{20,}(\.[0-9]{1,18})?$`)

func (ask *streamRequest) after(cursor, wrong, hint string) error {
	if !cursorText.MatchString(cursor) {
		return badRequest(wrong, hint)
	}
	ask.start.Cursor = cursor
	return nil
}
