package posthorn

import (
	"context"
	"encoding/json"
	"iter"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// DeadLetter is an event that failed for good: the whole event, and why.
type DeadLetter struct {
	ID    int64  `json:"id"` // of the dead letter
	Group string `json:"group"`
	// Subscription is the handler that failed; "" means the event as a whole.
	Subscription string          `json:"subscription,omitempty"`
	EventID      int64           `json:"event_id"`
	Stream       string          `json:"stream"`
	Type         string          `json:"type"`
	Key          string          `json:"key,omitempty"`
	Tags         []string        `json:"tags,omitempty"`
	Payload      json.RawMessage `json:"payload"`
	Metadata     json.RawMessage `json:"metadata"`
	PublishedAt  time.Time       `json:"published_at"`
	Attempts     int             `json:"attempts"`
	Reason       string          `json:"reason"` // in a few words
	Error        string          `json:"error,omitempty"`
	Stack        string          `json:"stack,omitempty"` // of a panic
	Node         string          `json:"node,omitempty"`  // that had it last
	FailedAt     time.Time       `json:"failed_at"`
	// Sealed: the payload does not open here, and is as it is in the log.
	Sealed bool `json:"sealed,omitempty"`
}

// DeadLetterFilter says which dead letters are meant: those that match all of its
// fields. The zero value means all of them.
type DeadLetterFilter struct {
	IDs          []int64 // of dead letters; nil for any, empty for none
	EventID      int64
	Type         string
	Subscription string
	Reason       string
	Error        string // a part of it
	FailedAfter  time.Time
	FailedBefore time.Time
	Limit        int // the first ones only, oldest first
}

func (f DeadLetterFilter) internal() pg.DeadLetterFilter {
	filter := pg.DeadLetterFilter{
		IDs: f.IDs, Event: f.EventID, Type: f.Type, Reason: f.Reason, Error: f.Error, Limit: f.Limit,
	}
	if f.Subscription != "" {
		filter.Subscription = &f.Subscription
	}
	if !f.FailedAfter.IsZero() {
		filter.FailedAfter = &f.FailedAfter
	}
	if !f.FailedBefore.IsZero() {
		filter.FailedBefore = &f.FailedBefore
	}
	return filter
}

// deadLetterPage is how many are read at once; each may be as large as an event.
const deadLetterPage = 100

// DeadLetters yields the dead letters of a group, oldest first, or of all groups
// when group is "". It reads them page by page, so they may be redriven or purged
// meanwhile. It ends after an error. Payloads of confidential streams are opened;
// one that does not open here stays sealed, and says so.
func (c *Client) DeadLetters(ctx context.Context, group string, filter DeadLetterFilter) iter.Seq2[DeadLetter, error] {
	return func(yield func(DeadLetter, error) bool) {
		page := filter.internal()
		for left := filter.Limit; left > 0 || filter.Limit == 0; left -= page.Limit {
			page.Limit = deadLetterPage
			if filter.Limit > 0 {
				page.Limit = min(left, deadLetterPage)
			}
			letters, err := pg.ListDeadLetters(ctx, c.control, c.namespace, group, page)
			if err != nil {
				yield(DeadLetter{}, err)
				return
			}
			for _, letter := range letters {
				plain, opened, err := c.box.OpenPayload(ctx, c.namespace, letter.Stream, letter.Metadata, letter.Payload)
				if letter.Sealed = err != nil; opened {
					letter.Payload = plain
				}
				if !yield(DeadLetter(letter), nil) {
					return
				}
				page.After = letter.ID
			}
			if len(letters) < page.Limit {
				return
			}
		}
	}
}

// Redrive brings dead letters of a group back, with all their attempts again, and
// returns how many; of all groups when group is "".
func (c *Client) Redrive(ctx context.Context, group string, filter DeadLetterFilter) (int64, error) {
	n, err := pg.Redrive(ctx, c.control, c.namespace, group, filter.internal())
	if n > 0 {
		c.watch.Published()
	}
	return n, err
}

// Purge deletes dead letters of a group for good and returns how many; of all
// groups when group is "". Nothing brings them back.
func (c *Client) Purge(ctx context.Context, group string, filter DeadLetterFilter) (int64, error) {
	return pg.Purge(ctx, c.control, c.namespace, group, filter.internal())
}
