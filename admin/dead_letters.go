package admin

import (
	"context"
	"encoding/json"
	"iter"
	"time"

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
	Error        string          `json:"error,omitempty"`
	Stack        string          `json:"stack,omitempty"` // of a panic
	Node         string          `json:"node,omitempty"`  // that handled it last
	FailedAt     time.Time       `json:"failed_at"`

	// Sealed: the payload is confidential, does not open here, and stays as it is in
	// the log.
	Sealed bool `json:"sealed,omitempty" db:"-" doc:"It is confidential and does not open here"`
}

// DeadLetterFilter selects the dead letters that match all of its fields. The zero value
// selects all dead letters of the namespace.
type DeadLetterFilter struct {
	Group        string    `json:"-"`               // "": all groups
	IDs          []int64   `json:"ids,omitzero"`    // of dead letters; nil for any, empty for none
	After        int64     `json:"after,omitempty"` // those with higher ids
	EventID      int64     `json:"event,omitempty"`
	Type         string    `json:"type,omitempty"`
	NotStreams   []string  `json:"not_streams,omitempty"` // those of other streams only
	Subscription string    `json:"subscription,omitempty"`
	Reason       string    `json:"reason,omitempty"`
	Error        string    `json:"error,omitempty"` // a part of the error
	FailedBefore time.Time `json:"failed_before,omitzero"`
	FailedAfter  time.Time `json:"failed_after,omitzero"`
	Limit        int       `json:"limit,omitempty"`  // at most that many, oldest first
	Offset       int       `json:"offset,omitempty"` // without that many at the beginning
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

func (a *Admin) deadLetters(ctx context.Context, filter DeadLetterFilter) ([]DeadLetter, error) {
	document, err := json.Marshal(filter)
	if err != nil {
		return nil, pg.Translate("list dead letters", err)
	}
	return rows[DeadLetter](ctx, a.db, "list dead letters",
		"select * from posthorn.list_dead_letters($1::text, $2::text, $3::jsonb)", a.namespace, pg.Optional(filter.Group), string(document))
}

// CountDeadLetters returns the number of dead letters that a filter selects.
func (a *Admin) CountDeadLetters(ctx context.Context, filter DeadLetterFilter) (int64, error) {
	document, err := json.Marshal(filter)
	if err != nil {
		return 0, pg.Translate("count dead letters", err)
	}
	return pg.Value[int64](ctx, a.db, "count dead letters", "select posthorn.count_dead_letters($1::text, $2::text, $3::jsonb)",
		a.namespace, pg.Optional(filter.Group), string(document))
}

// Redrive hands the events of dead letters out again, at once and with all their
// attempts, and returns their number.
func (a *Admin) Redrive(ctx context.Context, filter DeadLetterFilter) (int64, error) {
	return a.onDeadLetters(ctx, "redrive-dead-letters", "select posthorn.redrive($1::text, $2::text, $3::jsonb)", filter)
}

// Purge deletes dead letters for good, and returns their number.
func (a *Admin) Purge(ctx context.Context, filter DeadLetterFilter) (int64, error) {
	return a.onDeadLetters(ctx, "purge-dead-letters", "select posthorn.purge($1::text, $2::text, $3::jsonb)", filter)
}

func (a *Admin) onDeadLetters(ctx context.Context, name, sql string, filter DeadLetterFilter) (int64, error) {
	document, err := json.Marshal(filter)
	if err != nil {
		return 0, pg.Translate(name, err)
	}
	return changed[int64](ctx, a, entry{name, filter.Group, json.RawMessage(document)}, sql, a.namespace, pg.Optional(filter.Group), string(document))
}
