package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"reflect"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
)

// DeadLetter is an event that failed for good, with the error.
type DeadLetter struct {
	ID           int64           `json:"id"` // of the dead letter, not of the event
	Group        string          `json:"group" db:"group_name"`
	Subscription string          `json:"subscription,omitempty"` // the handler that failed; "": all of them
	EventID      int64           `json:"event_id"`
	Stream       string          `json:"stream"`
	Type         string          `json:"type"`
	Key          string          `json:"key,omitempty"`
	Tags         []string        `json:"tags,omitempty"`
	Payload      json.RawMessage `json:"payload"`
	Metadata     json.RawMessage `json:"metadata"`
	PublishedAt  time.Time       `json:"published_at"`
	Attempts     int             `json:"attempts"`
	Reason       string          `json:"reason"` // a short one
	Cause        string          `json:"cause"`  // the error without its numbers and quoted parts
	Error        string          `json:"error,omitempty"`
	Stack        string          `json:"stack,omitempty"` // of a panic
	Node         string          `json:"node,omitempty"`  // that handled it last
	FailedAt     time.Time       `json:"failed_at"`

	// Story has the newest twenty attempts that failed, and the actions of people.
	Story       []Chapter `json:"story,omitempty"`
	DiscardedAt time.Time `json:"discarded_at,omitzero"`
	DiscardedBy string    `json:"discarded_by,omitempty"`

	// Sealed: the payload is confidential, does not open here, and stays as it is in
	// the log.
	Sealed bool `json:"sealed,omitempty" db:"-" doc:"It is confidential and does not open here"`
}

// DeadLetterFilter selects the dead letters that match all of its fields. The zero value
// selects all dead letters of the namespace. Its tags are those of package op: the HTTP
// API, the command line and the page have the same filter.
type DeadLetterFilter struct {
	Group        string    `json:"group,omitempty" query:"group" flag:"group" doc:"Default: all groups"`
	IDs          []int64   `json:"ids,omitzero" flag:"id" page:"id" maxItems:"10000" doc:"The ids of dead letters"` // nil for any, empty for none
	EventID      int64     `json:"event,omitempty" query:"event" flag:"event" minimum:"1" doc:"The id of the event"`
	Type         string    `json:"type,omitempty" query:"type" flag:"type" doc:"The type of the event"`
	Subscription string    `json:"subscription,omitempty" query:"subscription" flag:"subscription" doc:"The subscription, or handler, that failed"`
	Unsubscribed bool      `json:"unsubscribed,omitempty" query:"unsubscribed" flag:"unsubscribed" doc:"true: only those that no single subscription was owed"`
	Reason       string    `json:"reason,omitempty" query:"reason" flag:"reason" doc:"The whole reason"`
	Cause        string    `json:"cause,omitempty" query:"cause" flag:"cause" doc:"The error without its numbers and quoted parts, as dead letters have it"`
	Error        string    `json:"error,omitempty" query:"error" flag:"error" doc:"A part of the error message"`
	FailedAfter  time.Time `json:"failed_after,omitzero" query:"failed_after" flag:"failed-after" page:"from" doc:"Only those that failed at this time or later"`
	FailedBefore time.Time `json:"failed_before,omitzero" query:"failed_before" flag:"failed-before" page:"before" doc:"Only those that failed before this time"`
	Key          string    `json:"key,omitempty" query:"key" flag:"key" doc:"The key of the event"`
	UpTo         int64     `json:"upto,omitempty" query:"upto" flag:"upto" page:"-" minimum:"1" doc:"Only dead letters with this id or a lower one"`
	Discarded    bool      `json:"discarded,omitempty" query:"discarded" flag:"discarded" page:"-" doc:"true: only discarded dead letters. Default: only others"`
	After        int64     `json:"after,omitempty" flag:"after" page:"-" minimum:"1" doc:"Only dead letters with higher ids"`
	Limit        int       `json:"limit,omitempty" page:"-" minimum:"1" doc:"The largest number of dead letters, oldest first"`
	Offset       int       `json:"offset,omitempty" page:"-" minimum:"0" doc:"Without so many at the beginning"`
}

// Selects reports whether the filter chooses by anything but pages and whether dead letters
// are discarded. An action with a filter that does not has to say that all are meant.
func (f DeadLetterFilter) Selects() bool {
	f.Discarded, f.After, f.Limit, f.Offset = false, 0, 0, 0
	return !reflect.DeepEqual(f, DeadLetterFilter{})
}

// deadLetterDocument is a filter as SQL functions read it. They take the group as an
// argument of its own.
type deadLetterDocument struct {
	DeadLetterFilter
	Subscription *string  `json:"subscription,omitempty"` // "": those that no single subscription was owed
	NotStreams   []string `json:"not_streams,omitempty"`
}

func (f DeadLetterFilter) document(hidden []string) deadLetterDocument {
	d := deadLetterDocument{DeadLetterFilter: f, NotStreams: hidden}
	switch {
	case f.Unsubscribed:
		d.Subscription = new(string)
	case f.Subscription != "":
		d.Subscription = &f.Subscription
	}
	d.Group, d.Unsubscribed = "", false
	return d
}

// Chapter is a part of the story of an event in a group: an attempt that failed, or
// something that a person did with its dead letter.
type Chapter struct {
	At      time.Time `json:"at"`
	Attempt int       `json:"attempt,omitempty"`
	Node    string    `json:"node,omitempty"`
	Error   string    `json:"error,omitempty"` // its beginning

	Redriven   bool  `json:"redriven,omitempty"`
	Discarded  bool  `json:"discarded,omitempty"`
	Recovered  bool  `json:"recovered,omitempty"`
	EditedFrom int64 `json:"edited_from,omitempty"` // the event of which this is the edited one
	EditedAs   int64 `json:"edited_as,omitempty"`   // the edited event that was redriven instead
}

// EventChapter is a chapter of an event, with its group and subscription.
type EventChapter struct {
	Group        string `json:"group" db:"group_name"`
	Subscription string `json:"subscription,omitempty"`
	Chapter
}

// EventStory returns the stories of an event in the groups in which it is retried or
// dead. Groups that have finished with it keep no story.
func (a *Admin) EventStory(ctx context.Context, event int64) ([]EventChapter, error) {
	if err := a.seeEvent(ctx, event); err != nil {
		return nil, err
	}
	type row struct {
		Group        string          `db:"group_name"`
		Subscription string          `db:"subscription"`
		Chapter      json.RawMessage `db:"chapter"`
	}
	found, err := rows[row](ctx, a.db, "show story", "select * from posthorn.event_story($1::text, $2::bigint) o where "+seenHandler, a.namespace, event, list(a.hidden))
	var story []EventChapter
	for _, r := range found {
		c := EventChapter{Group: r.Group, Subscription: r.Subscription}
		if err := json.Unmarshal(r.Chapter, &c.Chapter); err != nil {
			return nil, pg.Translate("show story", err)
		}
		story = append(story, c)
	}
	return story, err
}

// BriefDeadLetter is a dead letter without its payload and stack.
type BriefDeadLetter struct {
	ID           int64     `json:"id"`
	Group        string    `json:"group" db:"group_name"`
	Subscription string    `json:"subscription,omitempty"`
	EventID      int64     `json:"event_id"`
	Stream       string    `json:"stream"`
	Type         string    `json:"type"`
	Key          string    `json:"key,omitempty"`
	Attempts     int       `json:"attempts"`
	Reason       string    `json:"reason"`
	Error        string    `json:"error,omitempty"` // its beginning
	Node         string    `json:"node,omitempty"`
	FailedAt     time.Time `json:"failed_at"`
	DiscardedAt  time.Time `json:"discarded_at,omitzero"`
	DiscardedBy  string    `json:"discarded_by,omitempty"`
}

// NewestDeadLetters returns dead letters without their payloads, newest first. Limit is
// required; a list goes on with UpTo. It looks at 5,000 dead letters of the namespace, or
// of the group. If that ends it, next is the UpTo with which to go on; otherwise 0.
func (a *Admin) NewestDeadLetters(ctx context.Context, filter DeadLetterFilter) (letters []BriefDeadLetter, next int64, err error) {
	document, err := a.deadLetterFilter(ctx, filter)
	if err != nil {
		return nil, 0, pg.Translate("list dead letters", err)
	}
	type row struct {
		BriefDeadLetter
		LookedTo int64 `db:"looked_to"`
	}
	found, err := rows[row](ctx, a.db, "list dead letters",
		"select * from posthorn.brief_dead_letters($1::text, $2::text, $3::jsonb)", a.namespace, pg.Optional(filter.Group), document)
	for _, r := range found {
		if r.LookedTo > 0 {
			next = r.LookedTo - 1
		} else {
			letters = append(letters, r.BriefDeadLetter)
		}
	}
	return letters, next, err
}

// DeadLetterIDs returns the ids of dead letters, in order.
func (a *Admin) DeadLetterIDs(ctx context.Context, filter DeadLetterFilter) ([]int64, error) {
	document, err := a.deadLetterFilter(ctx, filter)
	if err != nil {
		return nil, pg.Translate("list dead letters", err)
	}
	return pg.Collect(ctx, a.db, "list dead letters", pgx.RowTo[int64],
		"select posthorn.dead_letter_ids($1::text, $2::text, $3::jsonb)", a.namespace, pg.Optional(filter.Group), document)
}

// DeadLetterReason is a number of dead letters that have group, handler, reason and cause
// in common.
type DeadLetterReason struct {
	Group         string    `json:"group" db:"group_name"`
	Subscription  string    `json:"subscription,omitempty"`
	Reason        string    `json:"reason"`
	Cause         string    `json:"cause"`
	DeadLetters   int64     `json:"dead_letters"`
	FirstFailedAt time.Time `json:"first_failed_at"`
	LastFailedAt  time.Time `json:"last_failed_at"`
	LastID        int64     `json:"last_id"`    // of the dead letter that failed last
	LastError     string    `json:"last_error"` // the beginning of its error
}

// DeadLetterReasons counts dead letters by group, handler, reason and cause: those that
// failed last come first. Without a group it counts those of the namespace.
func (a *Admin) DeadLetterReasons(ctx context.Context, group string, limit int) ([]DeadLetterReason, error) {
	if group != "" {
		if err := a.see(ctx, a.db, aGroup(group)); err != nil {
			return nil, err
		}
	}
	return rows[DeadLetterReason](ctx, a.db, "count dead letters",
		"select * from posthorn.dead_letter_reasons($1::text, $2::text, $3::text[], $4::int)",
		a.namespace, pg.Optional(group), list(a.hidden), limit)
}

// deadLetterPage is the number of dead letters that one statement reads. Each may be as
// large as an event.
const deadLetterPage = 100

// DeadLetters yields dead letters, oldest first. It reads them in pages, so the loop may
// redrive or purge them. It ends after an error.
func (a *Admin) DeadLetters(ctx context.Context, filter DeadLetterFilter) iter.Seq2[DeadLetter, error] {
	return func(yield func(DeadLetter, error) bool) {
		page := filter
		for left := filter.Limit; left > 0 || filter.Limit == 0; left -= page.Limit {
			page.Limit = deadLetterPage
			if filter.Limit > 0 {
				page.Limit = min(left, deadLetterPage)
			}
			letters, err := a.deadLetters(ctx, page)
			if err != nil {
				yield(DeadLetter{}, err)
				return
			}
			for _, letter := range letters {
				letter.Payload, letter.Sealed = a.open(ctx, letter.Stream, letter.Metadata, letter.Payload)
				if !yield(letter, nil) {
					return
				}
				page.After, page.Offset = letter.ID, 0
			}
			if len(letters) < page.Limit {
				return
			}
		}
	}
}

// DeadLetter returns one dead letter, discarded or not.
func (a *Admin) DeadLetter(ctx context.Context, id int64) (DeadLetter, error) {
	for _, discarded := range []bool{false, true} {
		for letter, err := range a.DeadLetters(ctx, DeadLetterFilter{IDs: []int64{id}, Discarded: discarded}) {
			return letter, err
		}
	}
	return DeadLetter{}, pg.Translate("show dead letter", pg.NotFound(fmt.Sprintf("there is no dead letter %d", id),
		"It may have been redriven or purged; the audit log shows by whom. Dead letters can be selected by their event."))
}

func (a *Admin) deadLetters(ctx context.Context, filter DeadLetterFilter) ([]DeadLetter, error) {
	document, err := a.deadLetterFilter(ctx, filter)
	if err != nil {
		return nil, pg.Translate("list dead letters", err)
	}
	return rows[DeadLetter](ctx, a.db, "list dead letters",
		"select * from posthorn.list_dead_letters($1::text, $2::text, $3::jsonb)", a.namespace, pg.Optional(filter.Group), document)
}

// CountDeadLetters returns the number of dead letters that a filter selects, at most
// Limit if that is given.
func (a *Admin) CountDeadLetters(ctx context.Context, filter DeadLetterFilter) (int64, error) {
	document, err := a.deadLetterFilter(ctx, filter)
	if err != nil {
		return 0, pg.Translate("count dead letters", err)
	}
	return pg.Value[int64](ctx, a.db, "count dead letters", "select posthorn.count_dead_letters($1::text, $2::text, $3::jsonb)",
		a.namespace, pg.Optional(filter.Group), document)
}

// deadLetterFilter is a filter as SQL functions read it. It leaves out dead letters that the
// caller may not see.
func (a *Admin) deadLetterFilter(ctx context.Context, filter DeadLetterFilter) (string, error) {
	if filter.Group != "" {
		if err := a.see(ctx, a.db, aGroup(filter.Group)); err != nil {
			return "", err
		}
	}
	document, err := json.Marshal(filter.document(a.hidden))
	return string(document), err
}

// deadLettersAtOnce is the number of dead letters that one transaction of an action touches:
// so many are done within a second or so.
const deadLettersAtOnce = 1000

// NextDeadLetters selects, by their ids, the first of the dead letters that a filter selects,
// as many as one transaction of an action should touch. Rest selects the others; nil: there
// are none. It goes on by ids, since some may stay: redriving one whose condition still fails
// leaves it.
func (a *Admin) NextDeadLetters(ctx context.Context, filter DeadLetterFilter) (part DeadLetterFilter, rest *DeadLetterFilter, err error) {
	most := deadLettersAtOnce
	if filter.Limit > 0 {
		most = min(most, filter.Limit)
	}
	part = filter
	part.Limit = most
	ids, err := a.DeadLetterIDs(ctx, part)
	if err != nil {
		return part, nil, err
	}
	part.IDs, part.Limit, part.Offset = append([]int64{}, ids...), 0, 0
	if len(ids) == most && filter.Limit != most {
		filter.After, filter.Limit, filter.Offset = ids[most-1], max(0, filter.Limit-most), 0
		rest = &filter
	}
	return part, rest, nil
}

// Redrive hands the events of dead letters out again, at once and with all their
// attempts, and returns their number. More than a thousand are done in several transactions,
// as by Purge, Discard and Recover: after an error some are done. Dead letters that come while
// it runs are left alone then.
func (a *Admin) Redrive(ctx context.Context, filter DeadLetterFilter) (int64, error) {
	return a.onDeadLetters(ctx, entry{"redrive-dead-letters", filter.Group, filter.document(nil)}, "select posthorn.redrive($1::text, $2::text, $3::jsonb)", filter)
}

// Purge deletes dead letters for good, and returns their number.
func (a *Admin) Purge(ctx context.Context, filter DeadLetterFilter) (int64, error) {
	return a.onDeadLetters(ctx, entry{"purge-dead-letters", filter.Group, filter.document(nil)}, "select posthorn.purge($1::text, $2::text, $3::jsonb)", filter)
}

// Discard marks dead letters as discarded, and returns their number. They are not listed
// any more, and upkeep deletes them after partition_retention_period; until then
// [Admin.Recover] takes the mark away.
func (a *Admin) Discard(ctx context.Context, filter DeadLetterFilter) (int64, error) {
	return a.onDeadLetters(ctx, entry{"discard-dead-letters", filter.Group, filter.document(nil)},
		"select posthorn.discard($1::text, $2::text, $3::jsonb, $4::text)", filter, pg.Optional(a.actor))
}

// Recover takes the mark of discarded dead letters away, and returns their number.
func (a *Admin) Recover(ctx context.Context, filter DeadLetterFilter) (int64, error) {
	filter.Discarded = true // which the parts are selected by
	return a.onDeadLetters(ctx, entry{"recover-dead-letters", filter.Group, filter.document(nil)}, "select posthorn.recover($1::text, $2::text, $3::jsonb)", filter)
}

// RedriveEdited hands a dead letter out again with another payload: as an event with an
// id of its own, which it returns. The dead letter is discarded.
func (a *Admin) RedriveEdited(ctx context.Context, id int64, payload json.RawMessage) (event int64, err error) {
	if !json.Valid(payload) {
		return 0, pg.Translate("redrive edited dead letter", pg.Invalid("the payload is not valid JSON", `It looks like {"a": 1}.`))
	}
	if len(a.hidden) > 0 {
		if ids, err := a.DeadLetterIDs(ctx, DeadLetterFilter{IDs: []int64{id}}); err != nil || len(ids) == 0 {
			return 0, cmp.Or(err, pg.NotFound(fmt.Sprintf("there is no dead letter %d", id), "It may have been redriven or purged."))
		}
	}
	_, err = a.recorded(ctx, anyStream, entry{"redrive-edited-dead-letter", strconv.FormatInt(id, 10), nil}, func(db DB) (n int64, err error) {
		event, err = pg.Value[int64](ctx, db, "redrive edited dead letter", "select posthorn.redrive_edited($1::text, $2::bigint, $3::json, $4::text)",
			a.namespace, id, string(payload), pg.Optional(a.actor))
		return 1, err
	})
	return event, err
}

// onDeadLetters makes an action on all dead letters that a filter selects. Few are done in one
// transaction, with the entry of the audit log.
func (a *Admin) onDeadLetters(ctx context.Context, e entry, sql string, filter DeadLetterFilter, args ...any) (n int64, err error) {
	if filter.IDs != nil && len(filter.IDs) <= deadLettersAtOnce {
		return a.onPart(ctx, e, sql, filter, args)
	}
	part, rest, err := a.NextDeadLetters(ctx, filter)
	if err != nil {
		return 0, err
	} else if rest == nil {
		return a.onPart(ctx, e, sql, part, args)
	}
	if rest.UpTo, err = a.lastDeadLetter(ctx, filter); err != nil {
		return 0, err
	}
	err = a.inParts(ctx, e, func(a *Admin) error {
		for {
			done, err := a.onPart(ctx, e, sql, part, args)
			if n += done; err != nil || rest == nil {
				return err
			}
			if part, rest, err = a.NextDeadLetters(ctx, *rest); err != nil {
				return err
			}
		}
	})
	return n, err
}

func (a *Admin) onPart(ctx context.Context, e entry, sql string, part DeadLetterFilter, args []any) (int64, error) {
	document, err := a.deadLetterFilter(ctx, part)
	if err != nil {
		return 0, pg.Translate(e.verb(), err)
	}
	return changed[int64](ctx, a, anyStream, e, sql, append([]any{a.namespace, pg.Optional(part.Group), document}, args...)...)
}

// lastDeadLetter returns the highest id of the dead letters that a filter selects.
func (a *Admin) lastDeadLetter(ctx context.Context, filter DeadLetterFilter) (int64, error) {
	filter.Limit, filter.Offset = 1, 0
	for {
		newest, next, err := a.NewestDeadLetters(ctx, filter)
		if err == nil && len(newest) > 0 {
			return newest[0].ID, nil
		} else if err != nil || next == 0 {
			return filter.UpTo, err
		}
		filter.UpTo = next
	}
}
