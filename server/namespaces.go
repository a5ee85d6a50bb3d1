package server

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/server/internal/in"
)

func (s *Server) namespaces() {
	register(s, operation{
		method: http.MethodGet, path: "/v1/namespaces", id: "list-namespaces", tag: "namespaces",
		summary:     "Namespaces",
		description: "All of them, or with a token the one that it is for.",
		scope:       scopeRead,
	}, s.listNamespaces)

	register(s, operation{
		method: http.MethodPut, path: "/v1/namespaces/{name}", id: "define-namespace", tag: "namespaces",
		summary:     "Make a namespace, or replace its metadata",
		description: "A namespace that exists gets the metadata of the body; without any, it has none afterwards.",
		scope:       scopeAdmin, status: http.StatusNoContent,
	}, s.defineNamespace)
}

func (s *Server) listNamespaces(ctx context.Context, c caller, _ *namespaceOnly) (*listOf[admin.Namespace], error) {
	all, err := s.admin(c).Namespaces(ctx)
	if err != nil {
		return nil, err
	}
	views := make([]admin.Namespace, 0, len(all))
	for _, n := range all {
		if !c.bound || n.Name == c.namespace {
			views = append(views, n)
		}
	}
	return page(views, ""), nil
}

type namespaceInput struct {
	in.Namespace
	Name string `path:"name" doc:"A lower-case letter, then up to 30 lower-case letters, digits, _ or -"`
	Body *struct {
		Metadata map[string]any `json:"metadata,omitempty"`
	}
}

func (s *Server) defineNamespace(ctx context.Context, c caller, input *namespaceInput) (*struct{}, error) {
	if c.bound && input.Name != c.namespace {
		return nil, newProblem(http.StatusForbidden, "a token is for its own namespace only", "Make others with posthorn migrate or SQL.")
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
