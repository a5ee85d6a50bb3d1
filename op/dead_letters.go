package op

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
)

var deadLetters = Topic{"dead letters", "dead letter", "7"}

// ListDeadLettersInput is a filter, and a page of the dead letters that it selects. Faces
// that have cursors set After.
type ListDeadLettersInput struct {
	Namespace
	Paging
	admin.DeadLetterFilter
}

var ListDeadLetters = Op[ListDeadLettersInput, []admin.DeadLetter]{
	About: About{
		Topic: deadLetters, Verb: "list", Scope: Read, SQL: "list_dead_letters",
		Does: "List dead letters, oldest first",
		More: "Each has the whole event, the reason and the error.",
		Example: "posthorn dead-letters list\n" +
			"posthorn dead-letters list --group billing --type order.placed --limit 10\n" +
			"posthorn dead-letters list --json",
		ByHand: map[Face]string{
			HTTP:    "a cursor has the id after which the page begins, and a payload that stays sealed is null",
			Command: "--limit tells whether there are more",
			Page:    "it lists the newest first, without payloads",
		},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *ListDeadLettersInput) ([]admin.DeadLetter, error) {
		filter := in.DeadLetterFilter
		filter.Limit = in.Paging.Limit
		var found []admin.DeadLetter
		for letter, err := range a.DeadLetters(ctx, filter) {
			if err != nil {
				return nil, err
			}
			found = append(found, letter)
		}
		return found, nil
	},
}

var GetDeadLetter = Op[ByID, admin.DeadLetter]{
	About: About{
		Topic: deadLetters, Verb: "get", Scope: Read, SQL: "list_dead_letters",
		Does:   "Show one dead letter, with payload and stack",
		More:   "The result has the whole event, the reason, the error and the attempts before, also if it is discarded.",
		ByHand: map[Face]string{HTTP: "a payload that stays sealed is null", Command: "it can open a sealed payload"},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *ByID) (admin.DeadLetter, error) {
		return a.DeadLetter(ctx, in.ID)
	},
}

// CountDeadLettersInput says which dead letters are counted.
type CountDeadLettersInput struct {
	Namespace
	Group string `query:"group" flag:"group" doc:"Default: all groups"`
	Limit int    `query:"limit" page:"-" minimum:"1" maximum:"1000" default:"100" doc:"The largest number of errors, those that came last"`
}

var CountDeadLetters = Op[CountDeadLettersInput, []admin.DeadLetterReason]{
	About: About{
		Topic: deadLetters, Verb: "count", Scope: Read, Name: "count-dead-letters", Go: "DeadLetterReasons", SQL: "dead_letter_reasons",
		Method: "GET", Path: "/v1/dead-letters/reasons", Command: "dead-letters reasons", Page: "dead-letters",
		Does: "Count dead letters by group, handler and error",
		More: "The error that came last is first. Its reason and its cause are fields by which dead letters are selected. Those " +
			"that are discarded are not counted.",
		Example: "posthorn dead-letters reasons\nposthorn dead-letters reasons --group billing --json",
		ByHand:  map[Face]string{Command: "--limit tells whether there are more", Page: "the list begins with them"},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *CountDeadLettersInput) ([]admin.DeadLetterReason, error) {
		return a.DeadLetterReasons(ctx, in.Group, in.Limit)
	},
}

// Chosen selects the dead letters of an action.
type Chosen struct {
	All bool `json:"all,omitempty" flag:"all" page:"-" doc:"Selects all dead letters. Needed if no other field selects some"`
	admin.DeadLetterFilter
}

// ChosenInput is the input of an action on many dead letters.
type ChosenInput struct {
	Namespace
	Body Chosen
}

// Check reports an input that selects nothing: that would be all dead letters of the
// namespace, which somebody has to mean.
func (in *ChosenInput) Check() error {
	if in.Body.All || in.Body.Selects() {
		return nil
	}
	return pg.Invalid("no dead letters are selected", `Select some by their fields, or all of them with the field all.`)
}

// DeadLetterAction is something that is done to dead letters: to all that a filter selects,
// to one, or in parts.
type DeadLetterAction struct {
	Verb, Does, More string
	Question         string // with the dead letters, counted, like Sentence
	Sentence         string
	Result           string // the name of the number in the JSON of the command
	Examples         string
	One              About  // Does, More and Method of the operation on one
	OneSentence      string // with the id
	Keeps            bool   // it deletes nothing
	Discarded        bool   // the page has it for discarded dead letters, and not for others
	Do               func(*admin.Admin, context.Context, admin.DeadLetterFilter) (int64, error)
}

var RedriveDeadLetters = DeadLetterAction{
	Verb: "redrive",
	Does: "Redrive dead letters: hand the events out again, with all their attempts",
	More: "Their groups are handed these events again at once, with all attempts. An event that fails again becomes a dead " +
		"letter again, so remove the cause before.",
	Question: "redrive %s", Sentence: "redrove %s", Result: "redriven",
	Examples: "posthorn dead-letters redrive --id 7 --id 9\n" +
		"posthorn dead-letters redrive --group billing --type order.placed\n" +
		"posthorn dead-letters redrive --all --yes",
	One: About{
		Does: "Redrive a dead letter",
		More: "Its group is handed the event again at once, with all attempts.",
	},
	OneSentence: "dead letter %d is handed out again",
	Keeps:       true,
	Do:          (*admin.Admin).Redrive,
}

var DiscardDeadLetters = DeadLetterAction{
	Verb: "discard",
	Does: "Discard dead letters: they are deleted after the retention of events, unless they are recovered",
	More: "Discarded dead letters are not shown and not counted any more. They can be recovered until the retention of " +
		"events has passed.",
	Question: "discard %s", Sentence: "discarded %s", Result: "discarded",
	Examples: "posthorn dead-letters discard --group billing --type order.placed\nposthorn dead-letters discard --failed-before -24h",
	One: About{
		Does: "Discard a dead letter",
		More: "It is not shown and not counted any more, and can be recovered until the retention of events has passed.",
	},
	OneSentence: "dead letter %d is discarded",
	Keeps:       true,
	Do:          (*admin.Admin).Discard,
}

var RecoverDeadLetters = DeadLetterAction{
	Verb:     "recover",
	Does:     "Recover discarded dead letters",
	More:     "They are dead letters again, as if they had not been discarded.",
	Question: "recover %s", Sentence: "recovered %s", Result: "recovered",
	Examples:    "posthorn dead-letters recover --group billing",
	One:         About{Does: "Recover a discarded dead letter", More: "It is a dead letter again, as if it had not been discarded."},
	OneSentence: "dead letter %d is recovered",
	Keeps:       true,
	Discarded:   true,
	Do:          (*admin.Admin).Recover,
}

var PurgeDeadLetters = DeadLetterAction{
	Verb:     "purge",
	Does:     "Delete dead letters for good",
	More:     "Nothing brings them back. The log keeps their events for as long as its retention says.",
	Question: "delete %s for good", Sentence: "purged %s", Result: "purged",
	Examples: "posthorn dead-letters purge --id 7\nposthorn dead-letters purge --group billing --yes",
	One: About{
		Does: "Delete a dead letter for good", Method: "DELETE",
		More: "Nothing brings it back. The log keeps the event for as long as its retention says.",
	},
	OneSentence: "dead letter %d is deleted for good",
	Discarded:   true,
	Do:          (*admin.Admin).Purge,
}

// DeadLetterActions are the actions on dead letters, in the order of their commands.
var DeadLetterActions = []DeadLetterAction{RedriveDeadLetters, DiscardDeadLetters, RecoverDeadLetters, PurgeDeadLetters}

// Many is the operation on all dead letters that a filter selects. It returns their number.
func (d DeadLetterAction) Many() Op[ChosenInput, int64] {
	return Op[ChosenInput, int64]{
		About: About{
			Topic: deadLetters, Verb: d.Verb, Wakes: true, Name: d.Verb + "-dead-letters", Go: title(d.Verb), SQL: d.Verb,
			Page: deadLetters.Slug() + "/" + d.Verb, Does: d.Does, Example: d.Examples,
			More: d.More + " The dead letters are those that match all given fields; without any, the field all has to select every " +
				"dead letter of the namespace. More than 1,000 are changed in parts: a call that is cut off has " +
				"changed some, and the next call goes on. The result is their number.",
			ByHand: map[Face]string{
				HTTP:    "the number is the field count",
				Command: "the number has a name of its own in JSON, and scripts that select are not asked, unless it deletes",
				Page:    "it asks with the number, and goes on in parts",
			},
		},
		Call: func(ctx context.Context, a *admin.Admin, in *ChosenInput) (int64, error) {
			if err := in.Check(); err != nil {
				return 0, err
			}
			return d.Do(a, ctx, in.Body.DeadLetterFilter)
		},
		Ask:  d.ask,
		Done: func(_ *ChosenInput, n int64) string { return fmt.Sprintf(d.Sentence, Counted(n, "dead letter")) },
	}
}

// ask asks with the number of dead letters. There is no question before an action that
// deletes nothing, on dead letters that are named one by one.
func (d DeadLetterAction) ask(ctx context.Context, a *admin.Admin, in *ChosenInput) (string, error) {
	if d.Keeps && !in.Body.All && len(in.Body.IDs) > 0 {
		return "", nil
	}
	counted := in.Body.DeadLetterFilter
	switch d.Verb {
	case "discard":
		counted.Discarded = false
	case "recover":
		counted.Discarded = true
	}
	n, err := a.CountDeadLetters(ctx, counted)
	return fmt.Sprintf(d.Question, Counted(n, "dead letter")), err
}

// Single is the operation on one dead letter.
func (d DeadLetterAction) Single() Op[ByID, None] {
	about := d.One
	about.Topic, about.Verb, about.Wakes, about.Go, about.SQL = deadLetters, d.Verb, true, title(d.Verb), d.Verb
	about.Command = deadLetters.Slug() + " " + d.Verb + " --id ID"
	about.ByHand = map[Face]string{Command: "it is the command for many"}
	single := Op[ByID, None]{
		About: about,
		Call:  d.toOne,
		Done:  func(in *ByID, _ None) string { return fmt.Sprintf(d.OneSentence, in.ID) },
	}
	if !d.Keeps {
		single.Ask = func(ctx context.Context, a *admin.Admin, in *ByID) (string, error) {
			letter, err := a.DeadLetter(ctx, in.ID)
			return fmt.Sprintf("delete dead letter %d, of event %d in group %s, for good", in.ID, letter.EventID, letter.Group), err
		}
	}
	return single
}

// toOne deletes also a dead letter that is discarded. Redriving one needs its recovery
// before, so that nobody hands an event out that somebody else has discarded meanwhile.
func (d DeadLetterAction) toOne(ctx context.Context, a *admin.Admin, in *ByID) (None, error) {
	filter := admin.DeadLetterFilter{IDs: []int64{in.ID}}
	if !d.Keeps {
		letter, err := a.DeadLetter(ctx, in.ID)
		if err != nil {
			return None{}, err
		}
		filter.Discarded = !letter.DiscardedAt.IsZero()
	}
	n, err := d.Do(a, ctx, filter)
	if err == nil && n == 0 {
		err = d.unchanged(ctx, a, in.ID)
	}
	return None{}, err
}

// unchanged is the error about a dead letter to which the action has done nothing.
func (d DeadLetterAction) unchanged(ctx context.Context, a *admin.Admin, id int64) error {
	letter, err := a.DeadLetter(ctx, id)
	switch {
	case err != nil:
		return err
	case !letter.DiscardedAt.IsZero():
		return pg.NotFound(fmt.Sprintf("dead letter %d is discarded", id), "Recover it first.")
	case d.Discarded:
		return pg.NotFound(fmt.Sprintf("dead letter %d is not discarded", id), "It need not be recovered.")
	}
	return pg.NotFound(fmt.Sprintf("dead letter %d stays as it is", id), "The condition of its subscription still fails; its error says why.")
}

// Part does the action to the next dead letters after an id, up to the last, and returns the
// id with which to go on; 0 at the end.
func (d DeadLetterAction) Part(ctx context.Context, a *admin.Admin, filter admin.DeadLetterFilter, after, last int64) (int64, error) {
	filter.After, filter.UpTo = after, last
	part, rest, err := a.NextDeadLetters(ctx, filter)
	if err != nil || len(part.IDs) == 0 {
		return 0, err
	}
	if _, err = d.Do(a, ctx, part); err != nil || rest == nil {
		return 0, err
	}
	return rest.After, nil
}

// RedriveEditedInput is a dead letter and its new payload.
type RedriveEditedInput struct {
	ByID
	Body struct {
		Payload json.RawMessage `json:"payload" doc:"The new payload, any JSON"`
	}
}

// Redriven has the event that is handed out instead.
type Redriven struct {
	Event int64 `json:"event" doc:"The id of the edited event"`
}

func (r Redriven) String() string { return strconv.FormatInt(r.Event, 10) }

var RedriveEditedDeadLetter = Op[RedriveEditedInput, Redriven]{
	About: About{
		Topic: deadLetters, Verb: "redrive-edited", Wakes: true, Go: "RedriveEdited", SQL: "redrive_edited",
		Command: "dead-letters redrive-edited ID PAYLOAD", Page: "dead-letter/edit",
		Does: "Redrive a dead letter with another payload",
		More: "The group is handed an event of its own, whose id is returned. The log keeps the old event as it was, and the " +
			"dead letter is discarded.",
		Example: `posthorn dead-letters redrive-edited 7 '{"order": 8}'`,
		ByHand: map[Face]string{
			Command: "PAYLOAD may come from the standard input",
			Page:    "the form shows the error, and the present payload in many lines",
		},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *RedriveEditedInput) (Redriven, error) {
		event, err := a.RedriveEdited(ctx, in.ID, in.Body.Payload)
		return Redriven{event}, err
	},
	Done: func(*RedriveEditedInput, Redriven) string { return "the edited event is handed out" },
}
