package page

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/posthorn/posthorn/admin"
)

func (p *Pages) seek() {
	p.screen(Screen{Path: "group/seek", Under: "groups", Scope: "admin", Show: askSeek})
	p.action(Action{Path: "group/seek", Do: func(ctx context.Context, r *Request) (string, string, error) {
		name := r.Value("name")
		err := r.Call(ctx, http.MethodPost, "/v1/groups/"+segment(name)+"/seek", map[string]string{"to": r.Value("to")}, nil)
		return r.Link("group", "name", name), "Group " + name + " was moved.", err
	}})
}

// place reads a place in the log: the beginning, the end, or a time in the field at.
func place(r *Request) (to admin.Moment, text string, err error) {
	switch r.Value("to") {
	case "beginning":
		return admin.Moment{InfinityModifier: pgtype.NegativeInfinity, Valid: true}, "beginning", nil
	case "end":
		return admin.Moment{InfinityModifier: pgtype.Infinity, Valid: true}, "end", nil
	}
	at, err := r.Time("at")
	if err == nil && at.IsZero() {
		err = invalid("the time is missing", "Choose the beginning, the end, or a time.")
	}
	return admin.Moment{Time: at, Valid: true}, at.Format(time.RFC3339), err
}

// askSeek asks before a group is moved, with what that would do.
func askSeek(ctx context.Context, r *Request) (*View, error) {
	name := r.Value("name")
	to, text, err := place(r)
	if err != nil {
		return nil, err
	}
	preview, err := r.Admin.PreviewSeek(ctx, name, to)
	if err != nil {
		return nil, err
	}
	sentence := text
	if to.InfinityModifier != pgtype.Finite {
		sentence = "the " + text + " of the log"
	}
	q := question{
		Sentence: "Move group " + name + " to " + sentence + "?", Advice: seekAdvice(preview), Action: "group/seek", Label: "Move it",
		Fields: []any{"name", name, "to", text}, BackLink: r.Link("group", "name", name),
	}
	return &View{Title: q.Sentence, Template: "question.html", Data: q}, nil
}

func seekAdvice(p admin.SeekPreview) string {
	about := func(n int64) string {
		if n >= 10000 {
			return "about " + things(n, "event")
		}
		return things(n, "event")
	}
	advice := "No event would be handed out again, and none passed over."
	switch {
	case p.Again > 0:
		advice = "It would be handed " + about(p.Again) + " again."
	case p.Skipped > 0:
		advice = "It would never be handed " + about(p.Skipped) + " that it has not read yet."
	}
	if p.HasSubscriptions {
		advice += " Of these, only those that one of its subscriptions wants."
	}
	if p.Leases > 0 {
		advice += fmt.Sprintf(" Workers would lose %s, and what they settle is refused.", things(p.Leases, "lease"))
	}
	return advice + " Retries and dead letters stay."
}
