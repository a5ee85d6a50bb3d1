package server

import (
	"context"
	"encoding/base64"
	"net/http"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/server/internal/in"
)

type streamsInput struct {
	in.Namespace
	in.Page
}

func (s *Server) streams() {
	register(s, operation{
		method: http.MethodGet, path: "/v1/streams", id: "list-streams", tag: "streams",
		summary:     "List streams by name",
		description: "Each with its security level and its encryption keys.",
		scope:       scopeRead,
	}, s.listStreams)
}

func (s *Server) listStreams(ctx context.Context, c caller, input *streamsInput) (*listOf[admin.Stream], error) {
	after, err := base64.RawURLEncoding.DecodeString(input.Cursor)
	if err != nil || !isText(string(after)) {
		return nil, badRequest("the cursor is not one of this list", "Give the field next of the previous page.")
	}
	found, err := s.admin(c).Streams(ctx, admin.StreamFilter{After: string(after), Limit: input.Limit})
	if err != nil {
		return nil, err
	}
	next := ""
	if len(found) == input.Limit {
		next = base64.RawURLEncoding.EncodeToString([]byte(found[len(found)-1].Name))
	}
	return page(found, next), nil
}
