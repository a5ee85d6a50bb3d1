package server

import (
	"context"
	"net/http"
	"net/url"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
)

// scope is a right that an operation needs and a token may have.
type scope string

const (
	scopePublish    scope = "publish"
	scopeConsume    scope = "consume"
	scopeJobsCreate scope = "jobs:create"
	scopeJobsWork   scope = "jobs:work"
	scopeRead       scope = "read"
	scopeAdmin      scope = "admin"
	scopeNone       scope = "" // anyone may, even without a token
)

var allScopes = []scope{scopePublish, scopeConsume, scopeJobsCreate, scopeJobsWork, scopeRead, scopeAdmin}

// caller is who asks, and what it may do.
type caller struct {
	name      string // for logs; "anyone" without tokens
	namespace string // whose everything it asks for is
	scopes    []scope
	streams   []string // restricted streams that it may read
	all       bool     // it may read restricted streams whatever their names
}

func (c caller) may(needed scope) bool {
	return needed == scopeNone || slices.Contains(c.scopes, needed)
}

// mayRead reports whether it may see events of a stream.
func (c caller) mayRead(string) bool { return true }

// authenticate says who asks. The error is a *problem: 401 for a token that is
// missing or unknown.
func (s *Server) authenticate(r *http.Request) (caller, error) {
	if s.options.Tokens {
		return caller{}, newProblem(http.StatusUnauthorized, "a token is required", "Send it as Authorization: Bearer TOKEN.")
	}
	return caller{name: "anyone", namespace: s.namespaceOf(r), scopes: allScopes, all: true}, nil
}

// namespaceOf is the namespace that the request names, or the client's.
func (s *Server) namespaceOf(r *http.Request) string {
	query, _ := url.ParseQuery(r.URL.RawQuery) // checked before
	if name := query.Get("namespace"); name != "" {
		return name
	}
	return s.client.Namespace()
}

// admit lets the caller in, or says why not and logs that.
func (s *Server) admit(r *http.Request, needed scope) (caller, error) {
	if needed == scopeNone {
		return caller{name: "anyone", namespace: s.client.Namespace()}, nil
	}
	c, err := s.authenticate(r)
	if err == nil && !c.may(needed) {
		err = newProblem(http.StatusForbidden, "the token lacks the scope "+string(needed), "Use a token that has it.")
	}
	if err != nil {
		s.log.Warn("request denied", "method", r.Method, "path", r.URL.Path, "remote", r.RemoteAddr,
			"caller", c.name, "namespace", c.namespace, "scope", string(needed), "error", err)
		return caller{}, err
	}
	recordOf(r.Context()).caller = c.name
	return c, nil
}

type callerKey struct{}

// callerOf is who asks, once require has let it in.
func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

// require is for operations of huma: it lets callers in that have the scope.
func (s *Server) require(needed scope) func(huma.Context, func(huma.Context)) {
	return func(hc huma.Context, next func(huma.Context)) {
		r, w := humago.Unwrap(hc)
		c, err := s.admit(r, needed)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		next(huma.WithValue(hc, callerKey{}, c))
	}
}

// requireRaw is require for handlers of net/http.
func (s *Server) requireRaw(needed scope, handler func(http.ResponseWriter, *http.Request, caller) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		c, err := s.admit(r, needed)
		if err == nil {
			err = handler(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, c)), c)
		}
		if err != nil {
			s.fail(w, r, err)
		}
	}
}
