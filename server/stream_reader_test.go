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

	"github.com/posthorn/posthorn/internal/await"
)

// heard is what a reader of server-sent events gets.
type heard struct {
	name, id, data string
}

func (h heard) isEvent() bool { return h.name == "" }

func (h heard) event(t testing.TB) eventView {
	t.Helper()
	var e eventView
	if err := json.Unmarshal([]byte(h.data), &e); err != nil {
		t.Fatalf("%v: %s", err, h.data)
	}
	return e
}

// reader reads server-sent events as browsers do.
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

// openReader waits for the first thing that a stream sends: where it begins.
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

// next returns what is dispatched next, by the rules of the HTML standard.
func (r *reader) next() (heard, error) {
	var h heard
	for {
		line, err := r.lines.ReadString('\n')
		if err != nil {
			return heard{}, err
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
			h = heard{}
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
			return heard{}, errors.New("no line of a stream: " + line)
		}
	}
}

// hear returns the next event or whatever, and fails the test if there is none.
func (r *reader) hear() heard {
	r.t.Helper()
	h, err := r.next()
	if err != nil {
		r.t.Fatal(err)
	}
	return h
}

// ids returns those of the next n events, whatever comes in between.
func (r *reader) ids(n int) []int64 {
	r.t.Helper()
	var ids []int64
	for len(ids) < n {
		if h := r.hear(); h.isEvent() {
			ids = append(ids, h.event(r.t).ID)
		}
	}
	return ids
}
