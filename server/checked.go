package server

import (
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"
)

// checked refuses what no route has to deal with, and sets the headers that all
// answers have.
func (s *Server) checked(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		if p := checkAddress(r.URL); p != nil {
			s.fail(w, r, p)
			return
		}
		if p := checkHeader(r.Header); p != nil {
			s.fail(w, r, p)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// checkAddress: names in paths and queries are text that Postgres can hold.
func checkAddress(u *url.URL) *problem {
	if !isText(u.Path) {
		return badRequest("the path is not valid UTF-8 without NUL", "")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return badRequest("the query cannot be read", "Percent-encode what is special in it.")
	}
	for name, values := range query {
		if !isText(name) || !isText(strings.Join(values, "")) {
			return badRequest("the query is not valid UTF-8 without NUL", "")
		}
		if len(values) > 1 {
			return badRequest("the query has "+name+" more than once", "Lists are separated by commas.")
		}
	}
	return nil
}

// single are headers that must not come twice: which of them would hold?
var single = []string{"Authorization", "Content-Type", "Content-Encoding", "Idempotency-Key", "Traceparent", "Last-Event-Id"}

func checkHeader(h http.Header) *problem {
	for _, name := range single {
		if len(h[name]) > 1 {
			return badRequest("the header "+name+" is there more than once", "Send it once.")
		}
	}
	return nil
}

func isText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }
