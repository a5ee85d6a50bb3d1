package server

import (
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	pages "github.com/posthorn/posthorn/server/page"
)

// checkRequests refuses requests with an invalid path, query or header, and sets the
// headers that all responses have.
func (s *Server) checkRequests(next http.Handler) http.Handler {
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

// checkAddress refuses paths and queries that Postgres cannot hold as text, and
// parameters that are repeated.
func checkAddress(u *url.URL) *problem {
	if !isText(u.Path) {
		return badRequest("the path is not valid UTF-8 without NUL", "")
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return badRequest("the query cannot be read", "Percent-encode special characters.")
	}
	for name, values := range query {
		if !isText(name) || !isText(strings.Join(values, "")) {
			return badRequest("the query is not valid UTF-8 without NUL", "")
		}
		if len(values) > 1 && (name != "id" || !pages.Owns(u.Path)) { // the page says which of its forms repeat it
			return badRequest("the query has "+name+" more than once", "Separate the elements of a list by commas.")
		}
	}
	return nil
}

// singleHeaders are refused when they are repeated, since it would be unclear which
// one counts.
var singleHeaders = []string{"Authorization", "Content-Type", "Content-Encoding", "Idempotency-Key", "Traceparent", "Last-Event-Id"}

func checkHeader(h http.Header) *problem {
	for _, name := range singleHeaders {
		if len(h[name]) > 1 {
			return badRequest("the request has the header "+name+" more than once", "Send it once.")
		}
	}
	return nil
}

func isText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }
