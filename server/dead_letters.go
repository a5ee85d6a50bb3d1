package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/server/internal/in"
)

type listDeadLettersInput struct {
	in.Namespace
	in.Page
	Group        string    `query:"group" doc:"Default: all groups"`
	Event        int64     `query:"event" minimum:"1" doc:"The id of the event"`
	Type         string    `query:"type"`
	Subscription string    `query:"subscription"`
	Reason       string    `query:"reason"`
	Error        string    `query:"error" doc:"A part of it"`
	FailedAfter  time.Time `query:"failed_after"`
	FailedBefore time.Time `query:"failed_before"`
}

// chosen says which dead letters are meant, in a body.
type chosen struct {
	All          bool      `json:"all,omitempty" doc:"Really all of them: needed when nothing else is said"`
	IDs          []int64   `json:"ids,omitempty" doc:"Of dead letters"`
	Group        string    `json:"group,omitempty" doc:"Default: all groups"`
	Event        int64     `json:"event,omitempty" minimum:"1"`
	Type         string    `json:"type,omitempty"`
	Subscription string    `json:"subscription,omitempty"`
	Reason       string    `json:"reason,omitempty"`
	Error        string    `json:"error,omitempty" doc:"A part of it"`
	FailedAfter  time.Time `json:"failed_after,omitzero"`
	FailedBefore time.Time `json:"failed_before,omitzero"`
	Limit        int       `json:"limit,omitempty" minimum:"1" doc:"The first ones only, oldest first"`
}

type chosenInput struct {
	in.Namespace
	Body chosen
}

type deadLetterInput struct {
	in.Namespace
	ID int64 `path:"id" minimum:"1" doc:"Of the dead letter"`
}

type deadLetterOutput struct{ Body admin.DeadLetter }

type countOutput struct {
	Body struct {
		Count int64 `json:"count" doc:"How many that were"`
	}
}

type onDeadLetters func(a *admin.Admin, ctx context.Context, filter admin.DeadLetterFilter) (int64, error)

func (s *Server) deadLetters() {
	register(s, operation{
		method: http.MethodGet, path: "/v1/dead-letters", id: "list-dead-letters", tag: "dead letters",
		summary:     "Events that failed for good, oldest first",
		description: "Each has the whole event, the reason and the error. The cursor next goes on after the last one.",
		scope:       scopeRead,
	}, s.listDeadLetters)

	register(s, operation{
		method: http.MethodGet, path: "/v1/dead-letters/{id}", id: "get-dead-letter", tag: "dead letters",
		summary:     "One dead letter",
		description: "The whole event, why it failed, and how often it was tried.",
		scope:       scopeRead,
	}, s.getDeadLetter)

	onMany := func(verb, summary string, do onDeadLetters) {
		register(s, operation{
			method: http.MethodPost, path: "/v1/dead-letters/" + verb, id: verb + "-dead-letters", tag: "dead letters",
			summary: summary, scope: scopeAdmin,
			description: "The body says which: by ids, by other fields, or all of them. The answer has their number.",
		}, func(ctx context.Context, c caller, input *chosenInput) (*countOutput, error) {
			return s.chosenDeadLetters(ctx, c, input.Body, do)
		})
	}
	onMany("redrive", "Bring dead letters back, with all their attempts again", (*admin.Admin).Redrive)
	onMany("purge", "Delete dead letters for good", (*admin.Admin).Purge)

	onOne := func(method, suffix, id, summary string, do onDeadLetters) {
		register(s, operation{
			method: method, path: "/v1/dead-letters/{id}" + suffix, id: id, tag: "dead letters",
			summary: summary, scope: scopeAdmin, status: http.StatusNoContent,
			description: "404 when there is no such dead letter, or no longer.",
		}, func(ctx context.Context, c caller, input *deadLetterInput) (*struct{}, error) {
			n, err := do(s.admin(c), ctx, admin.DeadLetterFilter{IDs: []int64{input.ID}, NotStreams: c.hidden})
			if err == nil && n == 0 {
				err = noDeadLetter(input.ID)
			}
			s.waits.newsForAll()
			return nil, err
		})
	}
	onOne(http.MethodPost, "/redrive", "redrive-dead-letter", "Bring a dead letter back", (*admin.Admin).Redrive)
	onOne(http.MethodDelete, "", "purge-dead-letter", "Delete a dead letter for good", (*admin.Admin).Purge)
}

func (s *Server) listDeadLetters(ctx context.Context, c caller, input *listDeadLettersInput) (*listOf[admin.DeadLetter], error) {
	filter := admin.DeadLetterFilter{
		Group: input.Group, EventID: input.Event, Type: input.Type, Reason: input.Reason, Error: input.Error, Limit: input.Limit,
		NotStreams: c.hidden, Subscription: input.Subscription, FailedAfter: input.FailedAfter, FailedBefore: input.FailedBefore,
	}
	var err error
	if filter.After, err = readCursor("dead-letters", input.Cursor); err != nil {
		return nil, err
	}
	found, err := s.findDeadLetters(ctx, c, filter)
	if err != nil {
		return nil, err
	}
	next := ""
	if len(found) == input.Limit {
		next = writeCursor("dead-letters", found[len(found)-1].ID)
	}
	return page(found, next), nil
}

// findDeadLetters opens payloads that open here, and leaves the others out.
func (s *Server) findDeadLetters(ctx context.Context, c caller, filter admin.DeadLetterFilter) ([]admin.DeadLetter, error) {
	var found []admin.DeadLetter
	for letter, err := range s.admin(c).DeadLetters(ctx, filter) {
		if err != nil {
			return nil, err
		}
		if letter.Sealed {
			letter.Payload = json.RawMessage("null")
		}
		found = append(found, letter)
	}
	return found, nil
}

func (s *Server) getDeadLetter(ctx context.Context, c caller, input *deadLetterInput) (*deadLetterOutput, error) {
	found, err := s.findDeadLetters(ctx, c, admin.DeadLetterFilter{IDs: []int64{input.ID}, NotStreams: c.hidden})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, noDeadLetter(input.ID)
	}
	return &deadLetterOutput{found[0]}, nil
}

func noDeadLetter(id int64) error {
	return notFound(fmt.Sprintf("there is no dead letter %d", id), "It may have been redriven or purged. An event's id is another: look with ?event=.")
}

func (s *Server) chosenDeadLetters(ctx context.Context, c caller, which chosen, do onDeadLetters) (*countOutput, error) {
	filter := admin.DeadLetterFilter{
		Group: which.Group, IDs: which.IDs, EventID: which.Event, Type: which.Type, Reason: which.Reason, Error: which.Error,
		Limit: which.Limit, NotStreams: c.hidden, Subscription: which.Subscription,
		FailedAfter: which.FailedAfter, FailedBefore: which.FailedBefore,
	}
	if !which.All && reflect.DeepEqual(which, chosen{Limit: which.Limit}) {
		return nil, badRequest("nothing says which dead letters are meant", `Name some, or send {"all": true}.`)
	}
	if which.Group != "" { // where there are no dead letters at all, nothing else would look for it
		if _, err := s.admin(c).Group(ctx, which.Group); err != nil {
			return nil, err
		}
	}
	var output countOutput
	var err error
	output.Body.Count, err = do(s.admin(c), ctx, filter)
	s.waits.newsForAll()
	return &output, err
}
