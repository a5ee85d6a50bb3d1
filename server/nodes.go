package server

import (
	"context"
	"net/http"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/server/internal/in"
)

type nodeInput struct {
	in.Namespace
	ID string `path:"id" doc:"The id under which the node is registered"`
}

func (s *Server) nodes() {
	registerList(s, operation{
		method: http.MethodGet, path: "/v1/nodes", id: "list-nodes", tag: "nodes",
		summary:     "List nodes",
		description: "Each registered process, with its last heartbeat, its leases and its handlers.",
		scope:       scopeRead,
	}, (*admin.Admin).Nodes)

	register(s, operation{
		method: http.MethodDelete, path: "/v1/nodes/{id}", id: "remove-node", tag: "nodes",
		summary:     "Remove a node and release its leases",
		description: "The response has the number of leases. The node need not be registered.",
		scope:       scopeAdmin,
	}, func(ctx context.Context, c caller, input *nodeInput) (output *countOutput, err error) {
		output = &countOutput{}
		output.Body.Count, err = s.admin(c).RemoveNode(ctx, input.ID)
		s.waits.wakeAll()
		return output, err
	})
}

func (s *Server) projections() {
	registerList(s, operation{
		method: http.MethodGet, path: "/v1/projections", id: "list-projections", tag: "projections",
		summary:     "List projections",
		description: "Each with its position in the log, its lag, and the error that stops it.",
		scope:       scopeRead,
	}, (*admin.Admin).Projections)

	register(s, operation{
		method: http.MethodGet, path: "/v1/projections/{name}", id: "get-projection", tag: "projections",
		summary:     "Get a projection",
		description: "Its position in the log, its lag, and the error that stops it.",
		scope:       scopeRead,
	}, func(ctx context.Context, c caller, input *in.ByName) (*bodyOf[admin.ProjectionStatus], error) {
		status, err := s.admin(c).Projection(ctx, input.Name)
		return &bodyOf[admin.ProjectionStatus]{status}, err
	})
}
