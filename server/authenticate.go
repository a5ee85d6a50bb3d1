package server

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/token"
)

// authenticate says who asks. The error is a *problem: 401 for a token that is
// missing or not good, 404 for a namespace that does not exist for it.
func (s *Server) authenticate(r *http.Request) (caller, error) {
	required, err := s.gate.needsToken(r.Context())
	if err != nil {
		return caller{name: "unknown"}, err
	}
	if !required {
		return s.anyone(r)
	}
	if r.Header.Get("Authorization") == "" {
		return caller{name: "unknown"}, errNoToken()
	}
	t, ok := bearer(r.Header)
	if !ok {
		return caller{name: "unknown"}, errNotAToken()
	}
	found, err := s.gate.find(r.Context(), t)
	if err != nil {
		return caller{name: t.Prefix}, err
	}
	if found == nil {
		return caller{name: t.Prefix}, s.gate.refuse(r.Context(), t)
	}
	return s.callerWith(r, t, found)
}

// again lets the caller in once more. What waits or streams asks before it hands
// something out: the token may have been revoked since, or a stream restricted.
func (s *Server) reauthorize(ctx context.Context, c caller) (caller, error) {
	c, err := s.recheck(ctx, c)
	if err != nil {
		note := recordOf(ctx)
		s.log.Warn("request denied while it waited", "method", note.method, "path", note.path,
			"caller", c.name, "namespace", c.namespace, "error", err)
	}
	return c, err
}

func (s *Server) recheck(ctx context.Context, c caller) (caller, error) {
	if c.token == (token.Token{}) {
		required, err := s.gate.needsToken(ctx)
		if err == nil && required {
			err = errNoToken()
		}
		return c, err
	}
	found, err := s.gate.find(ctx, c.token)
	if err == nil && found == nil {
		err = s.gate.refuse(ctx, c.token)
	}
	if err == nil {
		c.hidden, err = s.gate.hiddenFrom(ctx, c.named, c.namespace)
	}
	return c, err
}

func errNoToken() error {
	return newProblem(http.StatusUnauthorized, "a token is required", "Send it as Authorization: Bearer TOKEN.")
}

func errNotAToken() error {
	return newProblem(http.StatusUnauthorized, "the token is not good: it does not have the form of a token",
		"Send all of it, as posthorn tokens create printed it: Authorization: Bearer ph_...")
}

func errBadToken(end string) error {
	const hint = "Make another one: posthorn tokens create NAME --scope SCOPE."
	switch end {
	case "revoked":
		return newProblem(http.StatusUnauthorized, "the token is not good: it was revoked", hint)
	case "expired":
		return newProblem(http.StatusUnauthorized, "the token is not good: it has expired", hint)
	default:
		return newProblem(http.StatusUnauthorized, "the token is not good: this database does not know it",
			"Check that the server uses the database in which the token was made.")
	}
}

// bearer is the token that a request carries. What looks like none is none: it
// costs the database nothing, and is not logged.
func bearer(h http.Header) (token.Token, bool) {
	kind, text, found := strings.Cut(h.Get("Authorization"), " ")
	if !found || !strings.EqualFold(kind, "Bearer") {
		return token.Token{}, false
	}
	return token.Parse(strings.TrimSpace(text))
}

func (s *Server) callerWith(r *http.Request, t token.Token, found *admin.FoundToken) (caller, error) {
	c := caller{name: found.Name + " (" + t.Prefix + ")", namespace: s.client.Namespace(), token: t, named: found.Streams}
	for _, name := range found.Scopes {
		c.scopes = append(c.scopes, scope(name))
	}
	asked := namespaceIn(r)
	switch {
	case found.Namespace != nil && asked != "" && asked != *found.Namespace:
		return c, noNamespace(asked)
	case found.Namespace != nil:
		c.namespace, c.bound = *found.Namespace, true
	case asked != "":
		c.namespace = asked
	}
	var err error
	c.hidden, err = s.gate.hiddenFrom(r.Context(), c.named, c.namespace)
	return c, err
}

// noNamespace says of a namespace of others what is said of one that there is not.
func noNamespace(name string) *problem {
	return notFound(fmt.Sprintf("namespace %s does not exist", name), "The token is good in its own namespace only.")
}

// anyone is who asks where there are no tokens.
func (s *Server) anyone(r *http.Request) (caller, error) {
	c := caller{name: "anyone", namespace: s.client.Namespace(), scopes: allScopes}
	if asked := namespaceIn(r); asked != "" {
		c.namespace = asked
	}
	if s.options.Local && !isLocal(r.Host) {
		return c, newProblem(http.StatusForbidden, "without tokens, only this machine is answered, under the name localhost or 127.0.0.1",
			"Make a token: posthorn tokens create NAME --scope all.")
	}
	if !s.isOwnPage(r) {
		return c, newProblem(http.StatusForbidden, "web pages from elsewhere may not call this server", "Allow them with --cors-origin.")
	}
	return c, nil
}

// namespaceIn is the namespace that the request names, if it does.
func namespaceIn(r *http.Request) string {
	query, _ := url.ParseQuery(r.URL.RawQuery) // checked before
	return query.Get("namespace")
}

// isLocal: a name that somebody else has pointed at this machine is not it. A web
// page could use one to reach what listens on loopback only.
func isLocal(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// isOwnPage: browsers say where the page is from that makes them send a request.
// Others say nothing, and are no way in for pages.
func (s *Server) isOwnPage(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		site := r.Header.Get("Sec-Fetch-Site")
		return site == "" || site == "same-origin" || site == "none"
	}
	if slices.Contains(s.options.CORSOrigins, origin) || slices.Contains(s.options.CORSOrigins, "*") {
		return true
	}
	from, err := url.Parse(origin)
	return err == nil && from.Host != "" && strings.EqualFold(from.Host, r.Host)
}
