package server

import (
	"context"
	"encoding/json"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

// countOutput is the number of things that an operation has changed.
type countOutput struct {
	Body struct {
		Count int64 `json:"count" doc:"How many there were"`
	}
}

func (s *Server) deadLetters() {
	register(s, routeOf(op.ListDeadLetters), s.listDeadLetters)
	register(s, routeOf(op.GetDeadLetter), s.getDeadLetter)
	serveAll(s, op.CountDeadLetters)
	for _, action := range op.DeadLetterActions {
		serveCount(s, action.Many())
		serveNone(s, action.Single())
	}
	serveOne(s, op.RedriveEditedDeadLetter)
}

// serveCount adds the route of an operation that returns a number of things.
func serveCount[In any](s *Server, o op.Op[In, int64]) {
	register(s, routeOf(o), func(ctx context.Context, c caller, in *In) (*countOutput, error) {
		var output countOutput
		var err error
		output.Body.Count, err = perform(ctx, s, c, o, in)
		return &output, err
	})
}

func (s *Server) listDeadLetters(ctx context.Context, c caller, input *op.ListDeadLettersInput) (*listOf[admin.DeadLetter], error) {
	var err error
	if input.After, err = readCursor("dead-letters", input.Cursor); err != nil {
		return nil, err
	}
	found, err := op.ListDeadLetters.Call(ctx, s.admin(c), input)
	if err != nil {
		return nil, err
	}
	for i := range found {
		hideSealed(&found[i])
	}
	next := ""
	if len(found) == input.Paging.Limit {
		next = writeCursor("dead-letters", found[len(found)-1].ID)
	}
	return page(found, next), nil
}

func (s *Server) getDeadLetter(ctx context.Context, c caller, input *op.ByID) (*bodyOf[admin.DeadLetter], error) {
	letter, err := op.GetDeadLetter.Call(ctx, s.admin(c), input)
	hideSealed(&letter)
	return &bodyOf[admin.DeadLetter]{letter}, err
}

// hideSealed makes a payload that stays sealed null.
func hideSealed(letter *admin.DeadLetter) {
	if letter.Sealed {
		letter.Payload = json.RawMessage("null")
	}
}
