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
		summary:     "Streams, by name",
		description: "Each with its policy.",
		scope:       scopeRead,
	}, s.listStreams)
}

func (s *Server) listStreams(ctx context.Context, c caller, input *streamsInput) (*listOf[admin.Stream], error) {
	after, err := base64.RawURLEncoding.DecodeString(input.Cursor)
	if err != nil || !isText(string(after)) {
		return nil, badRequest("the cursor is none of this list", "Give next of the page before.")
	}
	found, err := s.admin(c).Streams(ctx, admin.StreamFilter{After: string(after), Limit: input.Limit})
	if err != nil {
		return nil, err
	}
	next := ""
	if len(found) == input.Limit {
		next = base64.RawURLEncoding.EncodeToString([]byte(found[len(found)-1].Name))
	}
	return page(visible(c, found, func(s admin.Stream) string { return s.Name }), next), nil
}
