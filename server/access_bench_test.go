package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/posthorn/posthorn/internal/token"
)

// The cost of authenticating a request with a cached token.
func BenchmarkAuthenticate(b *testing.B) {
	s := serve(b)
	r := httptest.NewRequest(http.MethodGet, "/v1/nodes", nil)
	name, value, _ := strings.Cut(s.issue(b, "default", allScopes), ": ")
	r.Header.Set(name, value)
	for b.Loop() {
		if _, err := s.server.authenticate(r); err != nil {
			b.Fatal(err)
		}
	}
}

// The same during a flood of requests with made-up tokens.
func BenchmarkAuthenticateDuringAFlood(b *testing.B) {
	s := serve(b)
	header := s.issue(b, "default", allScopes)
	request := func(header string) *http.Request {
		r := httptest.NewRequest(http.MethodGet, "/v1/nodes", nil)
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
		return r
	}
	if _, err := s.server.authenticate(request(header)); err != nil {
		b.Fatal(err)
	}
	stop := make(chan struct{})
	defer close(stop)
	for range 8 {
		go func() {
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = s.server.authenticate(request("Authorization: Bearer " + token.New().Secret))
				}
			}
		}()
	}
	for b.Loop() {
		if _, err := s.server.authenticate(request(header)); err != nil {
			b.Fatal(err)
		}
	}
}
