package server

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/server/internal/in"
)

type namespaceInput struct {
	in.ByName
	Body *struct {
		Metadata map[string]any `json:"metadata,omitempty"`
	}
}

func (s *Server) namespaces() {
	register(s, operation{
		method: http.MethodGet, path: "/v1/namespaces", id: "list-namespaces", tag: "namespaces",
		summary:     "List namespaces",
		description: "A token that is valid in one namespace sees only that one.",
		scope:       scopeRead,
	}, s.listNamespaces)

	register(s, operation{
		method: http.MethodPut, path: "/v1/namespaces/{name}", id: "define-namespace", tag: "namespaces",
		summary: "Create a namespace, or replace its metadata",
		description: "Without metadata in the body, an existing namespace loses its metadata. " +
			"A name has up to 31 characters: a lower-case letter, then lower-case letters, digits, _ or -.",
		scope: scopeAdmin, status: http.StatusNoContent,
	}, s.defineNamespace)
}

func (s *Server) listNamespaces(ctx context.Context, c caller, _ *namespaceOnly) (*listOf[admin.Namespace], error) {
	all, err := s.admin(c).Namespaces(ctx)
	all = slices.DeleteFunc(all, func(n admin.Namespace) bool { return c.bound && n.Name != c.namespace })
	return page(all, ""), err
}

func (s *Server) defineNamespace(ctx context.Context, c caller, input *namespaceInput) (*struct{}, error) {
	if c.bound && input.Name != c.namespace {
		return nil, newProblem(http.StatusForbidden, "the token is valid in its own namespace only", "Create others with posthorn migrate or SQL.")
	}
	var metadata json.RawMessage
	if input.Body != nil && input.Body.Metadata != nil {
		var err error
		if metadata, err = json.Marshal(input.Body.Metadata); err != nil {
			return nil, err
		}
	}
	return nil, admin.New(s.client.Pool(), input.Name).DefineNamespace(ctx, metadata)
}
