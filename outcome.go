package posthorn

import (
	"context"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// State is what has become of an event in a group.
type State = pg.State

// The states of an event in a group, by what is owed soonest.
const (
	Processing          = pg.Processing          // somebody works on it
	Retrying            = pg.Retrying            // it has failed, and comes again
	Pending             = pg.Pending             // nobody has had it yet, or it was given back
	Dead                = pg.Dead                // it has failed for good
	CompletedWithErrors = pg.CompletedWithErrors // some handlers have failed for good, nothing is owed to the others
	Completed           = pg.Completed           // nothing is owed, nothing has failed
	PassedOver          = pg.PassedOver          // the group started behind it, or was moved over it
	Delayed             = pg.Delayed             // it enters the log later, under another id
)

// Outcome is what has become of an event in a group, or in one handler of it. A
// group has several when several handlers deviate from the rest; State is that of
// the group in all of them.
type Outcome struct {
	Group    string
	State    State
	Handler  string    // none: the event as a whole
	Attempts int       // of what is completed no count is kept
	Error    string    // of the last attempt
	Reason   string    // in a few words, why it failed for good
	Node     string    // who has it, or had it when it failed for good
	At       time.Time // since when it is worked on, or when it failed last
	DueAt    time.Time // when it comes again
}

// Outcomes returns what has become of an event in each group of the namespace.
// It fails with [ErrNotFound] for an event that is neither in the log, nor
// delayed, nor among what has failed.
func (c *Client) Outcomes(ctx context.Context, event int64) ([]Outcome, error) {
	found, err := pg.Outcomes(ctx, c.control, c.namespace, event)
	if err != nil {
		return nil, err
	}
	outcomes := make([]Outcome, len(found))
	for i, o := range found {
		outcomes[i] = Outcome{
			Group: o.Group, State: o.State, Handler: o.Subscription, Attempts: o.Attempts,
			Error: o.Error, Reason: o.Reason, Node: o.Node, At: orZero(o.At), DueAt: orZero(o.DueAt),
		}
	}
	return outcomes, nil
}

func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return *t
}
