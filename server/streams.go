package server

import (
	"context"
	"encoding/base64"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func (s *Server) listStreams(ctx context.Context, c caller, input *op.ListStreamsInput) (*listOf[admin.Stream], error) {
	after, err := base64.RawURLEncoding.DecodeString(input.Cursor)
	if err != nil || !isText(string(after)) {
		return nil, badRequest("the cursor is not one of this list", "Give the field next of the previous page.")
	}
	input.After = string(after)
	found, err := op.ListStreams.Call(ctx, s.admin(c), input)
	if err != nil {
		return nil, err
	}
	next := ""
	if len(found) == input.Limit {
		next = base64.RawURLEncoding.EncodeToString([]byte(found[len(found)-1].Name))
	}
	return page(found, next), nil
}
