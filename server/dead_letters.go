package server

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/server/internal/in"
)

type listDeadLettersInput struct {
	in.Namespace
	in.Page
	admin.DeadLetterFilter
}

// chosen selects the dead letters of an action.
type chosen struct {
	All bool `json:"all,omitempty" doc:"Selects all dead letters. Needed if no other field selects some"`
	admin.DeadLetterFilter
}

type chosenInput struct {
	in.Namespace
	Body chosen
}

type countOutput struct {
	Body struct {
		Count int64 `json:"count" doc:"How many there were"`
	}
}

// deadLetterAction changes dead letters and returns how many.
type deadLetterAction func(*admin.Admin, context.Context, admin.DeadLetterFilter) (int64, error)

func (s *Server) deadLetters() {
	register(s, operation{
		method: http.MethodGet, path: "/v1/dead-letters", id: "list-dead-letters", tag: "dead letters",
		summary:     "List dead letters, oldest first",
		description: "Each has the whole event, the reason and the error.",
		scope:       scopeRead,
	}, s.listDeadLetters)

	register(s, operation{
		method: http.MethodGet, path: "/v1/dead-letters/{id}", id: "get-dead-letter", tag: "dead letters",
		summary:     "Get a dead letter",
		description: "The whole event, the reason, the error, and the number of attempts.",
		scope:       scopeRead,
	}, s.getDeadLetter)

	onMany := func(verb, summary string, do deadLetterAction) {
		register(s, operation{
			method: http.MethodPost, path: "/v1/dead-letters/" + verb, id: verb + "-dead-letters", tag: "dead letters",
			summary: summary, scope: scopeAdmin,
			description: "The body selects them: by ids, by other fields, or all of them. The response has their number.",
		}, func(ctx context.Context, c caller, input *chosenInput) (*countOutput, error) {
			return s.changeDeadLetters(ctx, c, input.Body, do)
		})
	}
	onMany("redrive", "Redrive dead letters: hand the events out again, with all their attempts", (*admin.Admin).Redrive)
	onMany("purge", "Delete dead letters for good", (*admin.Admin).Purge)
	onMany("discard", "Discard dead letters: they are deleted after the retention of events, unless they are recovered", (*admin.Admin).Discard)
	onMany("recover", "Recover discarded dead letters", (*admin.Admin).Recover)

	onOne := func(method, suffix, id, summary string, do deadLetterAction) {
		register(s, operation{
			method: method, path: "/v1/dead-letters/{id}" + suffix, id: id, tag: "dead letters",
			summary: summary, scope: scopeAdmin, status: http.StatusNoContent,
			description: "404 if there is no such dead letter, or no longer.",
		}, func(ctx context.Context, c caller, input *in.ByID) (*struct{}, error) {
			n, err := do(s.admin(c), ctx, admin.DeadLetterFilter{IDs: []int64{input.ID}})
			if err == nil && n == 0 {
				err = errNoDeadLetter(input.ID)
			}
			s.waits.wakeAll()
			return nil, err
		})
	}
	onOne(http.MethodPost, "/redrive", "redrive-dead-letter", "Redrive a dead letter", (*admin.Admin).Redrive)
	onOne(http.MethodPost, "/discard", "discard-dead-letter", "Discard a dead letter", (*admin.Admin).Discard)
	onOne(http.MethodPost, "/recover", "recover-dead-letter", "Recover a discarded dead letter", (*admin.Admin).Recover)
	onOne(http.MethodDelete, "", "purge-dead-letter", "Delete a dead letter for good", (*admin.Admin).Purge)

	register(s, operation{
		method: http.MethodPost, path: "/v1/dead-letters/{id}/redrive-edited", id: "redrive-edited-dead-letter", tag: "dead letters",
		summary: "Redrive a dead letter with another payload", scope: scopeAdmin,
		description: "The group is handed a new event, whose id is returned. The dead letter is discarded.",
	}, s.redriveEdited)
}

type redriveEditedInput struct {
	in.ByID
	Body struct {
		Payload json.RawMessage `json:"payload"`
	}
}

type redriven struct {
	Event int64 `json:"event" doc:"The id of the edited event"`
}

func (s *Server) redriveEdited(ctx context.Context, c caller, input *redriveEditedInput) (*bodyOf[redriven], error) {
	if _, err := s.getDeadLetter(ctx, c, &input.ByID); err != nil { // with the same error as for any other request
		return nil, err
	}
	event, err := s.admin(c).RedriveEdited(ctx, input.ID, input.Body.Payload)
	s.waits.wakeAll()
	return &bodyOf[redriven]{redriven{event}}, err
}

func (s *Server) listDeadLetters(ctx context.Context, c caller, input *listDeadLettersInput) (*listOf[admin.DeadLetter], error) {
	filter := input.DeadLetterFilter
	filter.Limit = input.Page.Limit
	var err error
	if filter.After, err = readCursor("dead-letters", input.Cursor); err != nil {
		return nil, err
	}
	found, err := s.findDeadLetters(ctx, c, filter)
	if err != nil {
		return nil, err
	}
	next := ""
	if len(found) == filter.Limit {
		next = writeCursor("dead-letters", found[len(found)-1].ID)
	}
	return page(found, next), nil
}

// findDeadLetters returns dead letters. A payload that stays sealed is null.
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

func (s *Server) getDeadLetter(ctx context.Context, c caller, input *in.ByID) (*bodyOf[admin.DeadLetter], error) {
	found, err := s.findDeadLetters(ctx, c, admin.DeadLetterFilter{IDs: []int64{input.ID}})
	if err != nil {
		return nil, err
	}
	if len(found) == 0 {
		return nil, errNoDeadLetter(input.ID)
	}
	return &bodyOf[admin.DeadLetter]{found[0]}, nil
}

func errNoDeadLetter(id int64) error {
	return notFound(fmt.Sprintf("there is no dead letter %d", id),
		"It may have been redriven or purged. To find the dead letters of an event, use ?event=.")
}

func (s *Server) changeDeadLetters(ctx context.Context, c caller, selected chosen, do deadLetterAction) (*countOutput, error) {
	if !selected.All && !selected.Selects() {
		return nil, badRequest("the body selects no dead letters", `Name some, or send {"all": true}.`)
	}
	if selected.Group != "" { // without dead letters, the action would not notice that the group does not exist
		if _, err := s.admin(c).Group(ctx, selected.Group); err != nil {
			return nil, err
		}
	}
	var output countOutput
	var err error
	output.Body.Count, err = do(s.admin(c), ctx, selected.DeadLetterFilter)
	s.waits.wakeAll()
	return &output, err
}
