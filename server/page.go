package server

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/token"
	pages "github.com/posthorn/posthorn/server/page"
)

// servePage serves the page for people.
func (s *Server) servePage() {
	s.pages = pages.New(pages.Config{
		Door: door{s}, API: s, Drained: s.drained, Logger: s.log, Timeout: s.options.Timeout, Now: func() time.Time { return s.now() },
		Mount: s.options.mount,
	})
	s.mux.Handle("/{$}", s.pages)
	s.mux.Handle(pages.Root, s.pages)
}

// door lets people in to the page, by the rights of their tokens.
type door struct{ s *Server }

// Admit takes the token from the page's cookie, and the namespace from its path.
func (d door) Admit(r *http.Request, namespace, secret string) (pages.Caller, error) {
	asked := r.Clone(r.Context())
	asked.Header.Del("Authorization")
	if secret != "" {
		asked.Header.Set("Authorization", "Bearer "+secret)
	}
	query := asked.URL.Query()
	query.Del("namespace")
	if namespace != "" {
		query.Set("namespace", namespace)
	}
	asked.URL.RawQuery = query.Encode()
	if r.Method == http.MethodGet && r.Header.Get("Sec-Fetch-Mode") == "navigate" {
		asked.Header.Del("Sec-Fetch-Site") // a link on another site, whose page does not see the answer
	}
	c, err := d.s.authenticate(asked)
	recordOf(r.Context()).caller = c.name
	if err != nil {
		if secret != "" {
			d.s.logDenied(r, c, scopeNone, err)
		}
		return pages.Caller{}, err
	}
	if err := admin.New(d.s.client.Pool(), c.namespace).CheckNamespace(r.Context()); err != nil {
		return pages.Caller{}, err
	}
	caller := pages.Caller{
		Name: c.name, Namespace: c.namespace, Bound: c.bound, SignedIn: c.token != (token.Token{}), Hidden: c.hidden,
		Admin: d.s.admin(c).By(c.name),
	}
	for _, scope := range c.scopes {
		caller.Scopes = append(caller.Scopes, string(scope))
	}
	return caller, nil
}

// Problem shows errors as the HTTP API does.
func (d door) Problem(ctx context.Context, err error) *pages.Problem {
	if shown, ok := errors.AsType[*pages.Problem](err); ok {
		return shown
	}
	p := problemOf(ctx, err)
	d.s.recordProblem(ctx, p)
	return &pages.Problem{Status: p.Status, Detail: p.Detail, Hint: p.Hint}
}

func (d door) Woken() { d.s.groupQueues.WakeAll() }
