package server

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/internal/test/await"
)

// sentEvent is a server-sent event.
type sentEvent struct {
	name, id, data string
}

func (h sentEvent) isEvent() bool { return h.name == "" }

func (h sentEvent) event(t testing.TB) eventView {
	t.Helper()
	var e eventView
	if err := json.Unmarshal([]byte(h.data), &e); err != nil {
		t.Fatalf("%v: %s", err, h.data)
	}
	return e
}

// reader reads server-sent events as a browser does.
type reader struct {
	t        testing.TB
	response *http.Response
	lines    *bufio.Reader
	close    func()
	last     string // the last id
	retries  int
	comments int
}

// read opens a stream. The query has no question mark; headers are "Name: value".
func (s *served) read(t testing.TB, query string, headers ...string) *reader {
	t.Helper()
	r, err := openReader(t, s.client, s.url, query, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// openReader opens a stream, and reads the heartbeat with which it begins.
func openReader(t testing.TB, client *http.Client, url, query string, headers ...string) (*reader, error) {
	ctx, cancel := context.WithTimeout(t.Context(), await.Limit)
	t.Cleanup(cancel)
	request, err := http.NewRequestWithContext(ctx, "GET", url+"/v1/stream?"+query, nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "text/event-stream")
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		request.Header.Set(name, value)
	}
	response, err := client.Do(request)
	if err != nil {
		cancel()
		return nil, err
	}
	r := &reader{t: t, response: response, lines: bufio.NewReader(response.Body), close: cancel}
	if response.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(response.Body)
		cancel()
		return nil, errors.New(response.Status + ": " + string(body))
	}
	if first, err := r.next(); err != nil || first.name != "heartbeat" {
		cancel()
		return nil, errors.Join(errors.New("a stream began with "+first.name+" "+first.data), err)
	}
	return r, nil
}

// next returns the next server-sent event, by the rules of the HTML standard.
func (r *reader) next() (sentEvent, error) {
	var h sentEvent
	for {
		line, err := r.lines.ReadString('\n')
		if err != nil {
			return sentEvent{}, err
		}
		line = strings.TrimSuffix(line, "\n")
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if h.id != "" {
				r.last = h.id
			}
			if h.data != "" {
				h.id = r.last
				h.data = strings.TrimSuffix(h.data, "\n")
				return h, nil
			}
			h = sentEvent{}
		case field == "":
			r.comments++
		case field == "event":
			h.name = value
		case field == "id":
			h.id = value
		case field == "data":
			h.data += value + "\n"
		case field == "retry":
			r.retries++
		default:
			return sentEvent{}, errors.New("no line of a stream: " + line)
		}
	}
}

// mustNext is next, and fails the test after an error.
func (r *reader) mustNext() sentEvent {
	r.t.Helper()
	h, err := r.next()
	if err != nil {
		r.t.Fatal(err)
	}
	return h
}

// ids returns the ids of the next n events of the log.
func (r *reader) ids(n int) []int64 {
	r.t.Helper()
	var ids []int64
	for len(ids) < n {
		if h := r.mustNext(); h.isEvent() {
			ids = append(ids, h.event(r.t).ID)
		}
	}
	return ids
}
