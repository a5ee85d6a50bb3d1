package page

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"

	"github.com/posthorn/posthorn/admin"
)

func (p *Pages) deadLetter() {
	p.screen(Screen{Path: "dead-letter", Under: "dead-letters", Show: showDeadLetter})
	p.screen(Screen{Path: "dead-letter/edit", Under: "dead-letters", Scope: "admin", Show: editDeadLetter})
	p.action(Action{Path: "dead-letter/redrive", Do: onDeadLetter("redrive", "Event %d is handed out again.")})
	p.action(Action{Path: "dead-letter/discard", Do: onDeadLetter("discard", "The dead letter of event %d is discarded.")})
	p.action(Action{Path: "dead-letter/recover", Do: onDeadLetter("recover", "The dead letter of event %d is recovered.")})
	p.action(Action{Path: "dead-letter/edit", Do: redriveEdited})
}

// letterOf finds the dead letter of a request, discarded or not.
func letterOf(ctx context.Context, r *Request) (admin.DeadLetter, error) {
	id, err := r.Number("id")
	if err != nil {
		return admin.DeadLetter{}, err
	}
	for _, discarded := range []bool{false, true} {
		for letter, err := range r.Admin.DeadLetters(ctx, admin.DeadLetterFilter{IDs: []int64{id}, Discarded: discarded}) {
			return letter, err
		}
	}
	return admin.DeadLetter{}, &Problem{
		Status: http.StatusNotFound, Detail: fmt.Sprintf("there is no dead letter %d", id),
		Hint: "It may have been redriven or purged; the audit log shows by whom.",
	}
}

func showDeadLetter(ctx context.Context, r *Request) (*View, error) {
	letter, err := letterOf(ctx, r)
	return &View{Title: fmt.Sprintf("Dead letter %d", letter.ID), Data: letter}, err
}

func editDeadLetter(ctx context.Context, r *Request) (*View, error) {
	letter, err := letterOf(ctx, r)
	if err == nil && letter.Sealed {
		err = &Problem{
			Status: http.StatusForbidden, Detail: "the payload is confidential and does not open here",
			Hint: "Publish a new event in a process that has the key.",
		}
	}
	return &View{Title: "Edit and redrive", Template: "dead_letter_edit.html", Data: letter}, err
}

// onDeadLetter makes an action on one dead letter.
func onDeadLetter(verb, done string) func(context.Context, *Request) (string, string, error) {
	return func(ctx context.Context, r *Request) (string, string, error) {
		letter, err := letterOf(ctx, r)
		if err != nil {
			return "", "", err
		}
		err = r.Call(ctx, http.MethodPost, "/v1/dead-letters/"+strconv.FormatInt(letter.ID, 10)+"/"+verb, nil, nil)
		to := r.Link("dead-letters", "group", letter.Group)
		if verb == "recover" {
			to = r.Link("dead-letter", "id", letter.ID)
		}
		return to, fmt.Sprintf(done, letter.EventID), err
	}
}

func redriveEdited(ctx context.Context, r *Request) (string, string, error) {
	id, err := r.Number("id")
	if err != nil {
		return "", "", err
	}
	payload := r.Value("payload")
	if !json.Valid([]byte(payload)) {
		return "", "", invalid("the payload is not valid JSON", "Go back and correct it; nothing was done.")
	}
	var redriven struct {
		Event int64 `json:"event"`
	}
	err = r.Call(ctx, http.MethodPost, "/v1/dead-letters/"+strconv.FormatInt(id, 10)+"/redrive-edited",
		map[string]json.RawMessage{"payload": json.RawMessage(payload)}, &redriven)
	return r.Link("event", "id", redriven.Event), "The edited event is handed out.", err
}
