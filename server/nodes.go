package server

import (
	"context"
	"net/http"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/server/internal/in"
)

type nodeInput struct {
	in.Namespace
	ID string `path:"id" doc:"The id under which the node registered"`
}

type projectionInput struct {
	in.Namespace
	Name string `path:"name" doc:"The name of the projection"`
}

type projectionOutput struct{ Body admin.ProjectionStatus }

func (s *Server) nodes() {
	register(s, operation{
		method: http.MethodGet, path: "/v1/nodes", id: "list-nodes", tag: "nodes",
		summary:     "Nodes, and what they do",
		description: "Processes that have registered, with their last heartbeat, their leases and their handlers.",
		scope:       scopeRead,
	}, func(ctx context.Context, c caller, _ *namespaceOnly) (*listOf[admin.NodeStatus], error) {
		all, err := s.admin(c).Nodes(ctx)
		return page(all, ""), err
	})

	register(s, operation{
		method: http.MethodDelete, path: "/v1/nodes/{id}", id: "remove-node", tag: "nodes",
		summary:     "Remove a node, and give back its leases",
		description: "The count is that of the leases. It works for nodes that are not registered too.",
		scope:       scopeAdmin,
	}, func(ctx context.Context, c caller, input *nodeInput) (output *countOutput, err error) {
		output = &countOutput{}
		output.Body.Count, err = s.admin(c).RemoveNode(ctx, input.ID)
		s.waits.newsForAll()
		return output, err
	})
}

func (s *Server) projections() {
	register(s, operation{
		method: http.MethodGet, path: "/v1/projections", id: "list-projections", tag: "projections",
		summary:     "Projections, and where they stand",
		description: "Each with its position in the log, how far it is behind, and the error at which it stands still.",
		scope:       scopeRead,
	}, func(ctx context.Context, c caller, _ *namespaceOnly) (*listOf[admin.ProjectionStatus], error) {
		all, err := s.admin(c).Projections(ctx)
		return page(all, ""), err
	})

	register(s, operation{
		method: http.MethodGet, path: "/v1/projections/{name}", id: "get-projection", tag: "projections",
		summary:     "Where a projection stands",
		description: "Its position in the log, how far it is behind, and the error at which it stands still.",
		scope:       scopeRead,
	}, func(ctx context.Context, c caller, input *projectionInput) (*projectionOutput, error) {
		status, err := s.admin(c).Projection(ctx, input.Name)
		return &projectionOutput{status}, err
	})
}
