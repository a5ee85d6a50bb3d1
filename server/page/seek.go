package page

import (
	"context"
	"fmt"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func (p *Pages) seek() {
	p.screen(Screen{Path: "group/seek", Under: "groups", Scope: string(op.Admin), Show: askSeek})
	p.action(Action{Path: "group/seek", Do: func(ctx context.Context, r *Request) (string, string, error) {
		_, _, err := p.perform(ctx, r, op.SeekGroup)
		return r.Link("group", "name", r.Value("name")), "Group " + r.Value("name") + " was moved.", err
	}})
}

// askSeek shows the effects of moving a group before it is moved: to the beginning, the end,
// or the time in the field at.
func askSeek(ctx context.Context, r *Request) (*View, error) {
	name, to := r.Value("name"), r.Value("to")
	place := "the " + to + " of the log"
	if to == "" {
		at, err := r.Time("at")
		if err == nil && at.IsZero() {
			err = invalid("the time is missing", "Choose the beginning, the end, or a time.")
		}
		if err != nil {
			return nil, err
		}
		to = at.Format(time.RFC3339)
		place = to
	}
	preview, err := op.PreviewSeekGroup.Call(ctx, r.Admin, &op.PreviewSeekInput{ByName: op.ByName{Name: name}, To: to})
	if err != nil {
		return nil, err
	}
	q := question{
		Sentence: "Move group " + name + " to " + place + "?", Advice: seekAdvice(preview), Action: "group/seek", Label: "Move it",
		Fields: []any{"name", name, "to", to}, BackLink: r.Link("group", "name", name),
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
