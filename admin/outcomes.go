package admin

import (
	"context"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// State is the state of an event in a group.
type State string

// The states, by what is owed soonest.
const (
	Processing          State = "PROCESSING"            // in a lease, even one past its deadline that nobody has taken over
	Retrying            State = "RETRYING"              // it has failed, and is handed out again at DueAt
	Pending             State = "PENDING"               // not handed out yet, or given back
	Dead                State = "DEAD"                  // the event as a whole failed for good
	CompletedWithErrors State = "COMPLETED_WITH_ERRORS" // some subscriptions failed for good, nothing is owed to the others
	Completed           State = "COMPLETED"             // nothing is owed, nothing has failed
	PassedOver          State = "PASSED_OVER"           // never handed out: the group started behind it, or was moved over it
	Delayed             State = "DELAYED"               // it enters the log at DueAt, under another id
)

// Outcome is what has become of an event in a group, or in one subscription of it. A
// group has several when several subscriptions deviate; State is that of the group in
// all of them.
type Outcome struct {
	Group        string    `json:"group" db:"group_name"`
	State        State     `json:"state"`
	Subscription string    `json:"subscription,omitempty"` // or handler; "": the event as a whole
	Attempts     int       `json:"attempts,omitempty"`     // not counted for what is completed
	Error        string    `json:"error,omitempty"`        // of the last attempt
	Reason       string    `json:"reason,omitempty"`       // in a few words, why it failed for good
	Node         string    `json:"node,omitempty"`         // that has it, or had it when it failed for good
	At           time.Time `json:"at,omitzero"`            // since when it is worked on, or when it failed last
	DueAt        time.Time `json:"due_at,omitzero"`        // when it is handed out again
}

// Outcomes returns what has become of an event in each group of the namespace. It
// fails with posthorn.ErrNotFound for an event that is neither in the log, nor delayed,
// nor among those that have failed.
func (a *Admin) Outcomes(ctx context.Context, event int64) ([]Outcome, error) {
	return pg.Rows[Outcome](ctx, a.db, "outcomes", "select * from posthorn.outcomes($1::text, $2::bigint)", a.namespace, event)
}
