package send

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/posthorn/posthorn/internal/pg"
)

func ask(t testing.TB, c *Client, url string) (Answer, error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	return c.Send(ctx, Request{URL: url, Secrets: []string{secretA}, Events: []pg.Event{event}, At: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)})
}

func TestRedirectsAreNotFollowed(t *testing.T) {
	t.Parallel()
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			t.Errorf("%s was asked for", r.URL.Path)
		}
		http.Redirect(w, r, "/elsewhere", http.StatusPermanentRedirect)
	}))
	t.Cleanup(e.Close)
	answer, err := ask(t, local(t), e.URL)
	equal(t, "status", answer.Status, 308)
	equal(t, "error", err, nil)
}

func TestExcerpts(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		"":                              "",
		"sorry\n":                       "sorry\n",
		"a\x00b\xffc":                   "a�b�c",
		strings.Repeat("x", 1<<20):      strings.Repeat("x", 1024),
		strings.Repeat("x", 1023) + "ä": strings.Repeat("x", 1023),
		strings.Repeat("\x00", 5000):    strings.Repeat("�", 341),
	} {
		e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			_, _ = io.WriteString(w, body)
		}))
		answer, err := ask(t, local(t), e.URL)
		e.Close()
		equal(t, fmt.Sprintf("excerpt of %.20q", body), answer, Answer{RequestID: answer.RequestID, Status: 500, Excerpt: want})
		equal(t, "error", err, nil)
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		retryAfter, date string
		want             time.Duration
	}{
		{"", "", 0},
		{"120", "", 2 * time.Minute},
		{" 7 ", "", 7 * time.Second},
		{"0", "", 0},
		{"-5", "", 0},
		{"1.5", "", 0},
		{"soon", "", 0},
		{"86401", "", 24 * time.Hour},
		{"99999999999999999999999", "", 24 * time.Hour},
		{"Sat, 31 Jan 2026 12:05:00 GMT", "", 5 * time.Minute},
		{"Sat, 31 Jan 2026 11:00:00 GMT", "", 0},
		{"Fri, 31 Dec 9999 23:59:59 GMT", "", 24 * time.Hour},
		{"Sat, 31 Jan 2026 12:05:00 GMT", "Sat, 31 Jan 2026 12:04:00 GMT", time.Minute},
		{"Sat, 31 Jan 2026 12:05:00 GMT", "today", 5 * time.Minute},
	} {
		got := retryAfter(http.Header{"Retry-After": {test.retryAfter}, "Date": {test.date}}, now)
		equal(t, fmt.Sprintf("%q at %q", test.retryAfter, test.date), got, test.want)
	}
}

// speaking is an endpoint that sends the bytes to each request, and closes the connection unless it is to stay.
func speaking(t testing.TB, raw string, stay bool) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			_, _ = conn.Read(make([]byte, 1)) // an answer before the request is another error
			_, _ = io.WriteString(conn, raw)
			if stay {
				t.Cleanup(func() { _ = conn.Close() })
				continue
			}
			// What is left unread would become a reset, which can overtake the answer.
			_ = conn.(*net.TCPConn).CloseWrite()
			go func() { _, _ = io.Copy(io.Discard, conn); _ = conn.Close() }()
		}
	}()
	return "http://" + listener.Addr().String()
}

func TestOddAnswers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		raw    string
		status int
		error  string
	}{
		"nothing":          {"", 0, "EOF"},
		"another protocol": {"220 mail.example ESMTP\r\n", 0, "malformed HTTP"},
		"large headers":    {"HTTP/1.1 200 OK\r\nA: " + strings.Repeat("x", 1<<20) + "\r\n\r\n", 0, "exceeded 32768 bytes"},
		"cut off":          {"HTTP/1.1 500 Oops\r\nContent-Length: 100\r\n\r\nhalf", 500, ""},
		"bad chunks":       {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 200, ""},
		"no such status":   {"HTTP/1.1 999 Much\r\nContent-Length: 0\r\n\r\n", 999, ""},
	} {
		answer, err := ask(t, local(t), speaking(t, test.raw, false))
		equal(t, "status of "+name, answer.Status, test.status)
		if (err != nil) != (test.error != "") || err != nil && !strings.Contains(err.Error(), test.error) {
			t.Errorf("the error of %s is %v", name, err)
		}
	}
}

// The status counts, and the body does not delay it for longer than the context lasts.
func TestBodiesWithoutEnd(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{"HTTP/1.1 200 OK\r\n\r\nhalf", "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhalf"} {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		answer, err := local(t).Send(ctx, Request{URL: speaking(t, raw, true), Secrets: []string{secretA}, Events: []pg.Event{event}})
		cancel()
		if err != nil || answer.Status == 0 {
			t.Errorf("the answer is %+v, %v", answer, err)
		}
	}
}

// An endpoint that closes an idle connection just when it is used again costs no attempt.
func TestAClosedIdleConnectionIsNoFailure(t *testing.T) {
	t.Parallel()
	e := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	t.Cleanup(e.Close)
	c := local(t)
	for range 20 {
		if answer, err := ask(t, c, e.URL); err != nil || answer.Status != 200 {
			t.Fatalf("the answer is %+v, %v", answer, err)
		}
		e.CloseClientConnections()
	}
}

// Whatever an endpoint sends, the answer is one that Postgres can store.
func FuzzAnswer(f *testing.F) {
	for _, raw := range []string{
		"", "HTTP/1.1 200 OK\r\n\r\n", "HTTP/1.1 410 Gone\r\nContent-Length: 3\r\n\r\nbye", "HTTP/1.0 200\r\n\r\n\xff\x00", "HTTP/1.1 000 \r\n\r\n",
		"HTTP/1.1 429 Slow\r\nRetry-After: 99999999999999999999\r\n\r\n", "HTTP/1.1 503 x\r\nRetry-After: Sat, 31 Jan 2026 12:05:00 GMT\r\nDate: \x00\r\n\r\n",
		"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", "HTTP/1.1 101 x\r\nUpgrade: h2c\r\nConnection: upgrade\r\n\r\nPRI",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nTrailer: x\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
		"HTTP/1.1 307 x\r\nLocation: http://169.254.169.254/\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\x1f\x8b", "SSH-2.0-x\r\n",
		strings.Repeat("HTTP/1.1 103 x\r\n\r\n", 50), "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", 9000),
	} {
		f.Add(raw)
	}
	c := local(f)
	f.Fuzz(func(t *testing.T, raw string) {
		answer, err := ask(t, c, speaking(t, raw, false))
		if (err == nil) != (answer.Status != 0) || answer.Status < 0 || answer.Status > 999 {
			t.Errorf("status %d, error %v", answer.Status, err)
		}
		if answer.RetryAfter < 0 || answer.RetryAfter > 24*time.Hour {
			t.Errorf("retry after %s", answer.RetryAfter)
		}
		storable(t, answer.Excerpt, 1024)
		if err != nil {
			storable(t, err.Error(), 300)
		}
	})
}

func storable(t *testing.T, text string, longest int) {
	t.Helper()
	if len(text) > longest || !utf8.ValidString(text) || strings.Contains(text, "\x00") {
		t.Errorf("%d bytes: %q", len(text), text)
	}
}
