package server

import (
	"net/http"
	"slices"

	"github.com/posthorn/posthorn/internal/token"
)

// crossOrigin lets the web pages of some origins in, and keeps others from
// changing anything: a page anywhere could make a browser post to a server on
// the same machine.
func (s *Server) crossOrigin(next http.Handler) http.Handler {
	if slices.Contains(s.options.CORSOrigins, "*") {
		return allowOrigins(s.options.CORSOrigins, next)
	}
	protection := http.NewCrossOriginProtection()
	for _, origin := range s.options.CORSOrigins {
		if err := protection.AddTrustedOrigin(origin); err != nil {
			s.log.Warn("an origin is none, and so never allowed", "origin", origin, "error", err)
		}
	}
	protection.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.log.Warn("request denied", "method", r.Method, "path", token.Hide(r.URL.Path), "remote", r.RemoteAddr, "origin", r.Header.Get("Origin"))
		s.fail(w, r, newProblem(http.StatusForbidden, "a page of another origin may not do that", "Allow its origin where the server is started."))
	}))
	return allowOrigins(s.options.CORSOrigins, protection.Handler(next))
}

// allowOrigins says to browsers which pages may read answers.
func allowOrigins(origins []string, next http.Handler) http.Handler {
	if len(origins) == 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Vary", "Origin")
		origin := r.Header.Get("Origin")
		if origin == "" || !slices.Contains(origins, origin) && !slices.Contains(origins, "*") {
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Access-Control-Allow-Origin", origin)
		w.Header().Set("Access-Control-Expose-Headers", "Idempotency-Replayed, Link, Posthorn-Lease, Posthorn-Attempt, Retry-After, Traceparent")
		if r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != "" {
			w.Header().Set("Access-Control-Allow-Methods", "GET, POST, PUT, DELETE")
			w.Header().Set("Access-Control-Allow-Headers", r.Header.Get("Access-Control-Request-Headers"))
			w.Header().Set("Access-Control-Max-Age", "600")
			w.WriteHeader(http.StatusNoContent)
			return
		}
		next.ServeHTTP(w, r)
	})
}
