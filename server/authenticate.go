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

// authenticate returns the caller of a request. The error is 401 for a token that is
// missing or not valid, and 404 for a namespace in which the token has no rights. While no
// token is required, it is 403 for requests of other hosts and origins.
func (s *Server) authenticate(r *http.Request) (caller, error) {
	required, err := s.access.tokenRequired(r.Context())
	if err != nil {
		return caller{name: "unknown"}, err
	}
	if !required {
		return s.callerWithoutToken(r)
	}
	if r.Header.Get("Authorization") == "" {
		return caller{name: "unknown"}, errNoToken()
	}
	t, ok := bearer(r.Header)
	if !ok {
		return caller{name: "unknown"}, errMalformedToken()
	}
	found, err := s.access.find(r.Context(), t)
	if err != nil {
		return caller{name: t.Prefix}, err
	}
	if found == nil {
		return caller{name: t.Prefix}, s.access.errInvalid(r.Context(), t)
	}
	return s.callerWithToken(r, t, found)
}

// reauthorize checks the rights of a caller again. Requests that wait, and streams, call
// it before they return an event: the token may have been revoked since, or a stream
// restricted.
func (s *Server) reauthorize(ctx context.Context, c caller) (caller, error) {
	c, err := s.recheck(ctx, c)
	if err != nil {
		record := recordOf(ctx)
		s.log.Warn("request denied while it waited", "method", record.method, "path", record.path,
			"caller", c.name, "namespace", c.namespace, "error", err)
	}
	return c, err
}

func (s *Server) recheck(ctx context.Context, c caller) (caller, error) {
	if c.token == (token.Token{}) {
		required, err := s.access.tokenRequired(ctx)
		if err == nil && required {
			err = errNoToken()
		}
		return c, err
	}
	found, err := s.access.find(ctx, c.token)
	if err == nil && found == nil {
		err = s.access.errInvalid(ctx, c.token)
	}
	if err == nil {
		c.hidden, err = s.access.hiddenStreams(ctx, c.namespace, c.held.Streams)
	}
	return c, err
}

func errNoToken() error {
	return newProblem(http.StatusUnauthorized, "a token is required", "Send it as Authorization: Bearer TOKEN.")
}

func errMalformedToken() error {
	return newProblem(http.StatusUnauthorized, "the token is not valid: it is malformed",
		"Send the whole token, as posthorn tokens create printed it: Authorization: Bearer ph_...")
}

func errInvalidToken(end string) error {
	const hint = "Create another one: posthorn tokens create NAME --scope SCOPE."
	switch end {
	case "revoked":
		return newProblem(http.StatusUnauthorized, "the token is not valid: it was revoked", hint)
	case "expired":
		return newProblem(http.StatusUnauthorized, "the token is not valid: it has expired", hint)
	default:
		return newProblem(http.StatusUnauthorized, "the token is not valid: it does not exist in this database",
			"Check that the server uses the database in which the token was created.")
	}
}

// bearer returns the token of a request. A malformed token is not looked up in the
// database and not logged.
func bearer(h http.Header) (token.Token, bool) {
	kind, text, found := strings.Cut(h.Get("Authorization"), " ")
	if !found || !strings.EqualFold(kind, "Bearer") {
		return token.Token{}, false
	}
	return token.Parse(strings.TrimSpace(text))
}

func (s *Server) callerWithToken(r *http.Request, t token.Token, found *admin.FoundToken) (caller, error) {
	c := caller{name: found.Name + " (" + t.Prefix + ")", namespace: s.client.Namespace(), token: t, held: found}
	for _, name := range found.Scopes {
		c.scopes = append(c.scopes, scope(name))
	}
	asked := namespaceIn(r)
	switch {
	case found.Namespace != nil && asked != "" && asked != *found.Namespace:
		return c, errNoNamespace(asked)
	case found.Namespace != nil:
		c.namespace, c.bound = *found.Namespace, true
	case asked != "":
		c.namespace = asked
	}
	var err error
	c.hidden, err = s.access.hiddenStreams(r.Context(), c.namespace, found.Streams)
	return c, err
}

// errNoNamespace is the error for a namespace in which the token has no rights. It does
// not tell whether the namespace exists.
func errNoNamespace(name string) *problem {
	return notFound(fmt.Sprintf("namespace %s does not exist", name), "The token is valid in its own namespace only.")
}

// callerWithoutToken returns the caller of a request while no token is required.
func (s *Server) callerWithoutToken(r *http.Request) (caller, error) {
	c := caller{name: "anyone", namespace: s.client.Namespace(), scopes: allScopes}
	if asked := namespaceIn(r); asked != "" {
		c.namespace = asked
	}
	if s.options.Local && !isLocal(r.Host) {
		return c, newProblem(http.StatusForbidden, "without tokens, the server answers only requests to localhost or 127.0.0.1",
			"Create a token: posthorn tokens create NAME --scope all.")
	}
	if !s.isAllowedOrigin(r) {
		return c, newProblem(http.StatusForbidden, "web pages of other origins may not call this server", "Allow their origin with --cors-origin.")
	}
	return c, nil
}

// namespaceIn returns the namespace that the query names, or "".
func namespaceIn(r *http.Request) string {
	query, _ := url.ParseQuery(r.URL.RawQuery) // checkAddress has refused invalid queries
	return query.Get("namespace")
}

// isLocal tells whether a host is localhost or a loopback address. Other names may
// resolve to this machine too: a web page could use its own to reach a server that
// listens on a loopback address.
func isLocal(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return strings.EqualFold(host, "localhost") || ip != nil && ip.IsLoopback()
}

// isAllowedOrigin tells whether a request may come from the page that sent it. Browsers
// send the origin of the page, or Sec-Fetch-Site; requests with neither do not come from a
// page.
func (s *Server) isAllowedOrigin(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		site := r.Header.Get("Sec-Fetch-Site")
		return site == "" || site == "same-origin" || site == "none"
	}
	if slices.Contains(s.options.CORSOrigins, origin) || slices.Contains(s.options.CORSOrigins, "*") {
		return true
	}
	page, err := url.Parse(origin)
	return err == nil && page.Host != "" && strings.EqualFold(page.Host, r.Host)
}
