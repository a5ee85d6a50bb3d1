package server

import (
	"context"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/token"
	pages "github.com/posthorn/posthorn/server/page"
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
	scopeNone       scope = "none" // no token is needed. The empty scope, of an operation that sets none, is one that no token has
)

var allScopes = []scope{scopePublish, scopeConsume, scopeJobsCreate, scopeJobsWork, scopeRead, scopeAdmin}

// caller is the sender of a request, with its rights.
type caller struct {
	name      string // for logs; "anyone" if no token is required
	namespace string // in which the request works
	bound     bool   // the caller has rights in that namespace only
	scopes    []scope
	operates  bool     // changes of the caller are recorded in the audit log
	hidden    []string // the restricted streams that the caller may neither read nor publish to

	token token.Token       // zero if no token is required
	held  *admin.FoundToken // its rights; nil likewise
}

func (c caller) may(needed scope) bool {
	return needed == scopeNone || slices.Contains(c.scopes, needed)
}

// authorize authenticates the caller of a request and checks its scope. It logs refused
// requests.
func (s *Server) authorize(r *http.Request, needed scope) (caller, error) {
	if needed == scopeNone {
		return caller{name: "anyone", namespace: s.client.Namespace()}, nil
	}
	c, err := s.authenticate(r)
	recordOf(r.Context()).caller = c.name
	c.operates = c.may(scopeAdmin) || pages.IsFrom(r.Context())
	if err == nil && !c.may(needed) {
		err = newProblem(http.StatusForbidden, "the token lacks the scope "+string(needed), "Use a token that has it.")
	}
	if err != nil {
		s.logDenied(r, c, needed, err)
		return caller{}, err
	}
	return c, nil
}

// logDenied logs a request that was refused. The message contains neither the token nor
// the query.
func (s *Server) logDenied(r *http.Request, c caller, needed scope, err error) {
	s.log.Warn("request denied", "method", r.Method, "path", token.Hide(r.URL.Path), "remote", r.RemoteAddr,
		"caller", c.name, "namespace", c.namespace, "scope", string(needed), "error", err)
}

type callerKey struct{}

// callerOf returns the caller that require has authorized.
func callerOf(ctx context.Context) caller {
	c, _ := ctx.Value(callerKey{}).(caller)
	return c
}

// require returns a middleware of huma that authorizes callers.
func (s *Server) require(needed scope) func(huma.Context, func(huma.Context)) {
	return func(hc huma.Context, next func(huma.Context)) {
		r, w := humago.Unwrap(hc)
		c, err := s.authorize(r, needed)
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
		c, err := s.authorize(r, needed)
		if err == nil {
			err = handler(w, r.WithContext(context.WithValue(r.Context(), callerKey{}, c)), c)
		}
		if err != nil {
			s.fail(w, r, err)
		}
	}
}
