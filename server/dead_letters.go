package server

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
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
	All          bool       `json:"all,omitempty" doc:"Really all of them: needed when nothing else is said"`
	IDs          []int64    `json:"ids,omitempty" doc:"Of dead letters"`
	Group        string     `json:"group,omitempty" doc:"Default: all groups"`
	Event        int64      `json:"event,omitempty" minimum:"1"`
	Type         string     `json:"type,omitempty"`
	Subscription string     `json:"subscription,omitempty"`
	Reason       string     `json:"reason,omitempty"`
	Error        string     `json:"error,omitempty" doc:"A part of it"`
	FailedAfter  *time.Time `json:"failed_after,omitempty"`
	FailedBefore *time.Time `json:"failed_before,omitempty"`
	Limit        int        `json:"limit,omitempty" minimum:"1" doc:"The first ones only, oldest first"`
}

type chosenInput struct {
	in.Namespace
	Body chosen
}

type deadLetterInput struct {
	in.Namespace
	ID int64 `path:"id" minimum:"1" doc:"Of the dead letter"`
}

type deadLetterOutput struct{ Body pg.DeadLetter }

type countOutput struct {
	Body struct {
		Count int64 `json:"count" doc:"How many that were"`
	}
}

type onDeadLetters func(ctx context.Context, db pg.DB, namespace, group string, filter pg.DeadLetterFilter) (int64, error)

func (s *Server) deadLetters() {
	register(s, operation{
		method: http.MethodGet, path: "/v1/dead-letters", id: "list-dead-letters", group: "dead letters",
		summary:     "Events that failed for good, oldest first",
		description: "Each has the whole event, the reason and the error. The cursor next goes on after the last one.",
		scope:       scopeRead,
	}, s.listDeadLetters)

	register(s, operation{
		method: http.MethodGet, path: "/v1/dead-letters/{id}", id: "get-dead-letter", group: "dead letters",
		summary:     "One dead letter",
		description: "The whole event, why it failed, and how often it was tried.",
		scope:       scopeRead,
	}, s.getDeadLetter)

	onMany := func(verb, summary string, do onDeadLetters) {
		register(s, operation{
			method: http.MethodPost, path: "/v1/dead-letters/" + verb, id: verb + "-dead-letters", group: "dead letters",
			summary: summary, scope: scopeAdmin,
			description: "The body says which: by ids, by other fields, or all of them. The answer has their number.",
		}, func(ctx context.Context, c caller, input *chosenInput) (*countOutput, error) {
			return s.chosenDeadLetters(ctx, c, input.Body, do)
		})
	}
	onMany("redrive", "Bring dead letters back, with all their attempts again", pg.Redrive)
	onMany("purge", "Delete dead letters for good", pg.Purge)

	onOne := func(method, suffix, id, summary string, do onDeadLetters) {
		register(s, operation{
			method: method, path: "/v1/dead-letters/{id}" + suffix, id: id, group: "dead letters",
			summary: summary, scope: scopeAdmin, status: http.StatusNoContent,
			description: "404 when there is no such dead letter, or no longer.",
		}, func(ctx context.Context, c caller, input *deadLetterInput) (*struct{}, error) {
			n, err := do(ctx, s.client.Pool(), c.namespace, "", pg.DeadLetterFilter{IDs: []int64{input.ID}, NotStreams: c.hidden})
			if err == nil && n == 0 {
				err = noDeadLetter(input.ID)
			}
			s.waits.newsForAll()
			return nil, err
		})
	}
	onOne(http.MethodPost, "/redrive", "redrive-dead-letter", "Bring a dead letter back", pg.Redrive)
	onOne(http.MethodDelete, "", "purge-dead-letter", "Delete a dead letter for good", pg.Purge)
}

func (s *Server) listDeadLetters(ctx context.Context, c caller, input *listDeadLettersInput) (*listOf[pg.DeadLetter], error) {
	filter := pg.DeadLetterFilter{
		Event: input.Event, Type: input.Type, Reason: input.Reason, Error: input.Error, Limit: input.Limit, NotStreams: c.hidden,
		Subscription: given(input.Subscription), FailedAfter: given(input.FailedAfter), FailedBefore: given(input.FailedBefore),
	}
	var err error
	if filter.After, err = readCursor("dead-letters", input.Cursor); err != nil {
		return nil, err
	}
	found, err := pg.ListDeadLetters(ctx, s.client.Pool(), c.namespace, input.Group, filter)
	if err != nil {
		return nil, err
	}
	s.openDeadLetters(ctx, c.namespace, found)
	next := ""
	if len(found) == input.Limit {
		next = writeCursor("dead-letters", found[len(found)-1].ID)
	}
	return page(found, next), nil
}

// given is nil for a value that was not.
func given[T comparable](value T) *T {
	var none T
	if value == none {
		return nil
	}
	return &value
}

func (s *Server) getDeadLetter(ctx context.Context, c caller, input *deadLetterInput) (*deadLetterOutput, error) {
	found, err := pg.ListDeadLetters(ctx, s.client.Pool(), c.namespace, "", pg.DeadLetterFilter{IDs: []int64{input.ID}, NotStreams: c.hidden})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, noDeadLetter(input.ID)
	}
	s.openDeadLetters(ctx, c.namespace, found[:1])
	return &deadLetterOutput{found[0]}, nil
}

func noDeadLetter(id int64) error {
	return notFound(fmt.Sprintf("there is no dead letter %d", id), "It may have been redriven or purged. An event's id is another: look with ?event=.")
}

func (s *Server) chosenDeadLetters(ctx context.Context, c caller, which chosen, do onDeadLetters) (*countOutput, error) {
	filter := pg.DeadLetterFilter{
		IDs: which.IDs, Event: which.Event, Type: which.Type, Reason: which.Reason, Error: which.Error, Limit: which.Limit, NotStreams: c.hidden,
		Subscription: given(which.Subscription), FailedAfter: which.FailedAfter, FailedBefore: which.FailedBefore,
	}
	if !which.All && reflect.DeepEqual(which, chosen{Limit: which.Limit}) {
		return nil, badRequest("nothing says which dead letters are meant", `Name some, or send {"all": true}.`)
	}
	if which.Group != "" { // where there are no dead letters at all, nothing else would look for it
		if _, err := pg.FindGroup(ctx, s.client.Pool(), c.namespace, which.Group); err != nil {
			return nil, err
		}
	}
	var output countOutput
	var err error
	output.Body.Count, err = do(ctx, s.client.Pool(), c.namespace, which.Group, filter)
	s.waits.newsForAll()
	return &output, err
}
