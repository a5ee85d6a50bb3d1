package server

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/posthorntest"
)

// served is a server with a database of its own.
type served struct {
	url      string           // of the server
	database string           // its URL
	ph       *posthorn.Client // of the server
	server   *Server
	client   *http.Client // of the test
	clock    *clock       // of the server's cache of tokens, and of sign-ins
}

// clock is a clock that only the test moves, so that cached tokens do not expire, and failed
// sign-ins are not long ago, on a slow machine.
type clock struct {
	start time.Time
	ahead atomic.Int64
}

func (c *clock) now() time.Time { return c.start.Add(time.Duration(c.ahead.Load())) }

// forget moves the clock until all cached tokens and policies have expired.
func (s *served) forget() { s.clock.ahead.Add(int64(cacheTime)) }

// serve runs a server until the test ends. At most one Options may be given.
func serve(t testing.TB, options ...Options) *served {
	t.Helper()
	database := posthorntest.Database(t)
	return serveClient(t, posthorntest.Open(t, posthorn.Config{DatabaseURL: database}), database, options...)
}

// socketBuffer is the size of the buffers of connections. It is small, so that a few
// events fill the connection of a slow reader.
const socketBuffer = 16 << 10

func serveClient(t testing.TB, ph *posthorn.Client, database string, options ...Options) *served {
	t.Helper()
	var o Options
	if len(options) > 0 {
		o = options[0]
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	s, moved := New(ph, o), &clock{start: time.Now()}
	s.access = newAccessCache(ph.Pool(), s.options.Tokens, moved.now)
	s.now = moved.now
	web := httptest.NewUnstartedServer(s)
	web.Config.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		_ = c.(*net.TCPConn).SetWriteBuffer(socketBuffer)
		return ctx
	}
	web.Start()
	web.Client().Transport.(*http.Transport).DialContext = (&net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, socketBuffer)
		})
	}}).DialContext
	t.Cleanup(func() {
		s.Drain()
		web.Close()
	})
	return &served{url: web.URL, database: database, ph: ph, server: s, client: web.Client(), clock: moved}
}

// answered is a response whose body was read.
type answered struct {
	status int
	header http.Header
	body   string
}

// call sends a request. A string is sent as it is, any other body as JSON; nil is no body.
// Headers are "Name: value".
func (s *served) call(t testing.TB, method, path string, body any, headers ...string) answered {
	t.Helper()
	var reader io.Reader
	contentType := ""
	switch body := body.(type) {
	case nil:
	case string:
		reader, contentType = strings.NewReader(body), "application/json"
	case []byte:
		reader, contentType = bytes.NewReader(body), "application/json"
	default:
		raw, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		reader, contentType = bytes.NewReader(raw), "application/json"
	}
	r, err := http.NewRequestWithContext(t.Context(), method, s.url+path, reader)
	if err != nil {
		t.Fatal(err)
	}
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	response, err := s.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	raw, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answered{response.StatusCode, response.Header, string(raw)}
}

// want fails the test unless the response has a status, and decodes the body into each of
// into.
func (a answered) want(t testing.TB, status int, into ...any) answered {
	t.Helper()
	if a.status != status {
		t.Fatalf("status %d, want %d: %s", a.status, status, a.body)
	}
	for _, target := range into {
		reflect.ValueOf(target).Elem().SetZero()
		if err := json.Unmarshal([]byte(a.body), target); err != nil {
			t.Fatalf("%v: %s", err, a.body)
		}
	}
	return a
}

// wantProblem fails the test unless the response is a problem that has a status and
// contains a text.
func (a answered) wantProblem(t testing.TB, status int, text string) problem {
	t.Helper()
	var p problem
	a.want(t, status, &p)
	if got := a.header.Get("Content-Type"); got != "application/problem+json" {
		t.Errorf("content type %q: %s", got, a.body)
	}
	if p.Status != status || p.Title == "" {
		t.Errorf("status and title are not those of a problem: %s", a.body)
	}
	if !strings.Contains(a.body, text) {
		t.Errorf("the problem does not mention %q: %s", text, a.body)
	}
	return p
}

func equal[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
