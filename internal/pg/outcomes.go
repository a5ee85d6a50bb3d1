package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// State is what has become of an event in a group.
type State string

// The states, by what is owed soonest.
const (
	Processing          State = "PROCESSING"            // in a lease, even one past its deadline: nobody has taken it over
	Retrying            State = "RETRYING"              // will be handed out again at DueAt
	Pending             State = "PENDING"               // not handed out yet, or given back
	Dead                State = "DEAD"                  // the event as a whole failed for good
	CompletedWithErrors State = "COMPLETED_WITH_ERRORS" // some subscriptions failed for good, nothing is owed to the others
	Completed           State = "COMPLETED"             // nothing is owed, nothing has failed
	PassedOver          State = "PASSED_OVER"           // never handed out: the group started behind it, or was moved over it
	Delayed             State = "DELAYED"               // enters the log at DueAt, under another id
)

// Outcome is what has become of an event in a group, or in one subscription of
// it. A group has several when several subscriptions deviate; State is that of
// the group in all of them.
type Outcome struct {
	Group        string     `json:"group"`
	State        State      `json:"state"`
	Subscription string     `json:"subscription,omitempty"` // none: the event as a whole
	Attempts     int        `json:"attempts,omitempty"`     // of what is completed no count is kept
	Error        string     `json:"error,omitempty"`
	Reason       string     `json:"reason,omitempty"` // of a dead letter
	Node         string     `json:"node,omitempty"`   // who has it, or had it when it failed for good
	At           *time.Time `json:"at,omitempty"`     // since when it is worked on, or when it failed last
	DueAt        *time.Time `json:"due_at,omitempty"` // when it is handed out again
}

// Outcomes returns what has become of an event in each group of its namespace,
// by the names of groups and subscriptions. It fails with [ErrNotFound] for an
// event that is neither in the log, nor delayed, nor among what has failed.
func Outcomes(ctx context.Context, db DB, namespace string, event int64) ([]Outcome, error) {
	return list(ctx, db, "outcomes", pgx.RowToStructByPos[Outcome], `
		select group_name, state, subscription, coalesce(attempts, 0), coalesce(error, ''), coalesce(reason, ''), coalesce(node, ''), at, due_at
		from posthorn.outcomes($1::text, $2::bigint)`, namespace, event)
}
