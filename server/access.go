package server

import (
	"context"
	"errors"
	"net/http"
	"slices"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/posthorn/posthorn"
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
	scopeNone       scope = "none" // anyone may, even without a token; an operation that says nothing lets nobody in
)

var allScopes = []scope{scopePublish, scopeConsume, scopeJobsCreate, scopeJobsWork, scopeRead, scopeAdmin}

// caller is who asks, and what it may do.
type caller struct {
	name      string // for logs; "anyone" without tokens
	namespace string // whose everything it asks for is
	bound     bool   // to that namespace: others do not exist for it
	scopes    []scope
	operates  bool     // what it changes is recorded in the audit log
	hidden    []string // the restricted streams that it neither reads nor publishes to

	token token.Token // none without tokens
	named []string    // the restricted streams that the token names
}

func (c caller) may(needed scope) bool {
	return needed == scopeNone || slices.Contains(c.scopes, needed)
}

// mayRead tells whether the caller may see events of a stream. Where events are
// looked up, those that it may not see look as if they did not exist; where many
// are, c.hidden goes into the query.
func (c caller) mayRead(stream string) bool { return !slices.Contains(c.hidden, stream) }

// checkPublish refuses streams that the caller may not publish to.
func (c caller) checkPublish(stream string) error {
	if c.mayRead(stream) {
		return nil
	}
	return newProblem(http.StatusForbidden, "the token does not name the restricted stream "+stream,
		"Use one that does: posthorn tokens create NAME --scope publish --stream "+stream+".")
}

// checkClaim refuses groups that may hand out events of streams which the caller
// may not read. Handing out the others only would lose these for the group, or
// keep them from everyone.
func (s *Server) checkClaim(ctx context.Context, c caller, group string) error {
	return s.refuseHidden(c, func() ([]string, error) {
		return s.admin(c).GroupStreams(ctx, group, c.hidden)
	})
}

// checkLease refuses the leases of groups from which the caller may not claim, and
// those that hold such an event anyway, so that nobody settles, by a guess at its
// number, what they may not even read.
func (s *Server) checkLease(ctx context.Context, c caller, lease int64) error {
	return s.refuseHidden(c, func() ([]string, error) {
		found, err := s.admin(c).LeaseStreams(ctx, lease, c.hidden)
		if err != nil || len(found) > 0 {
			return found, err
		}
		group, err := s.admin(c).LeaseGroup(ctx, lease)
		if err != nil {
			return nil, err
		}
		return s.admin(c).GroupStreams(ctx, group, c.hidden)
	})
}

// checkDefine is checkClaim for what changes a group, or makes it.
func (s *Server) checkDefine(ctx context.Context, c caller, group string) error {
	return unlessNew(s.checkClaim(ctx, c, group))
}

// checkRemove is checkClaim for what removes a group, or one of its subscriptions,
// with all that it holds.
func (s *Server) checkRemove(ctx context.Context, c caller, group string, subscription *string) error {
	return s.refuseHidden(c, func() ([]string, error) {
		found, err := s.admin(c).GroupStreams(ctx, group, c.hidden)
		if err != nil || len(found) > 0 {
			return found, err
		}
		return s.admin(c).HeldStreams(ctx, group, c.hidden, subscription)
	})
}

// unlessNew forgives that there is no group yet: nothing can be lost in it.
func unlessNew(err error) error {
	if errors.Is(err, posthorn.ErrNotFound) {
		return nil
	}
	return err
}

// refuseHidden refuses when a look finds streams that are hidden from the caller.
// Where none are hidden it does not look.
func (s *Server) refuseHidden(c caller, look func() ([]string, error)) error {
	if len(c.hidden) == 0 {
		return nil
	}
	found, err := look()
	if err == nil && len(found) > 0 {
		err = errHiddenClaim()
	}
	return err
}

func errHiddenClaim() error {
	return newProblem(http.StatusForbidden, "the group hands out or holds events of restricted streams that the token does not name",
		"Use a token that names them, or a group of which each subscription asks for other streams.")
}

// admit lets the caller in, or says why not and logs that.
func (s *Server) admit(r *http.Request, needed scope) (caller, error) {
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

// logDenied tells of who was not let in: never of what it sent to get in, nor of
// the query.
func (s *Server) logDenied(r *http.Request, c caller, needed scope, err error) {
	s.log.Warn("request denied", "method", r.Method, "path", token.Hide(r.URL.Path), "remote", r.RemoteAddr,
		"caller", c.name, "namespace", c.namespace, "scope", string(needed), "error", err)
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
