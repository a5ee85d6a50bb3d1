package relay

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/posthorn/posthorn"
)

// An id means one event for ever. A log that was restored moves its ids on as soon as
// it notices, past all that brokers may have. The checks here find the events that
// were published before it noticed: a sink must not take them for events that it has.

// aheadError has a hint for the operator.
type aheadError struct{ text, hint string }

func (e *aheadError) Error() string { return e.text }
func (e *aheadError) Hint() string  { return e.hint }

// LowestID returns the lowest id of events.
func LowestID(events []*posthorn.Event) int64 {
	low := int64(math.MaxInt64)
	for _, e := range events {
		low = min(low, e.ID)
	}
	return low
}

// CheckLast returns an error if a stream of the broker ends with an event whose id the
// log has not given out yet. events are those that the broker is about to get, in the
// order of the log; lastID is [posthorn.SinkBatch.LastID].
func CheckLast(ctx context.Context, lastID func(context.Context) (int64, error), last string, events []*posthorn.Event) error {
	id, err := strconv.ParseInt(last, 10, 64)
	if err != nil || lastID == nil || len(events) == 0 || id <= events[len(events)-1].ID {
		return nil
	}
	highest, err := lastID(ctx)
	if err != nil {
		return fmt.Errorf("read the last id of the log: %w", err)
	}
	if id <= highest {
		return nil // events that were committed late
	}
	return &aheadError{
		text: fmt.Sprintf("the broker is ahead of the log: it has event %d, and the log has given out ids up to %d", id, highest),
		hint: "After a failover this is the old primary, or another relay writes from one: see the old primary in docs/standbys.md. After a restore of data alone, see Restore in docs/operations.md.",
	}
}

// SameTime reports whether an event was published at a time, as the broker has it.
func SameTime(e *posthorn.Event, text string) bool {
	at, err := time.Parse(time.RFC3339Nano, text)
	return err != nil || at.Equal(e.PublishedAt)
}

// OtherEvent is the error of an event whose id is at most the one under which the
// broker has another event.
func OtherEvent(e *posthorn.Event, last, at string) error {
	return &aheadError{
		text: fmt.Sprintf("write event %d: the broker has another event under id %s, published at %s", e.ID, last, at),
		hint: "The event was published after a restore, before the database had noticed it. Publish it again, and discard this one.",
	}
}
