package admin

import (
	"context"
	"time"
)

// State is the state of an event in a group.
type State string

// The states, in the order of the next attempt.
const (
	Processing          State = "PROCESSING"            // in a lease, even one past its deadline that no worker has taken over
	Retrying            State = "RETRYING"              // failed, and handed out again at DueAt
	Pending             State = "PENDING"               // not handed out yet, given back, or owed to a webhook that is disabled or catches up
	Dead                State = "DEAD"                  // the event as a whole failed for good
	CompletedWithErrors State = "COMPLETED_WITH_ERRORS" // some subscriptions failed for good, and the others are done
	Completed           State = "COMPLETED"             // done, and nothing has failed
	PassedOver          State = "PASSED_OVER"           // never handed out: the group started behind it, or was moved over it
	Delayed             State = "DELAYED"               // enters the log at DueAt, under another id
)

// Outcome is the state of an event in a group, or in one subscription of the group. A
// group has several outcomes when several subscriptions differ; State is that of the
// group in each of them.
type Outcome struct {
	Group        string    `json:"group" db:"group_name"`
	State        State     `json:"state"`
	Subscription string    `json:"subscription,omitempty"` // or handler; "": the event as a whole
	Attempts     int       `json:"attempts,omitempty"`     // 0 when completed
	Error        string    `json:"error,omitempty"`        // of the last attempt
	Reason       string    `json:"reason,omitempty"`       // a short one, of an event that failed for good, or waits for a webhook that is disabled or catches up
	Node         string    `json:"node,omitempty"`         // that handles it, or did when it failed for good
	At           time.Time `json:"at,omitzero"`            // when its handling began, or when it failed last
	DueAt        time.Time `json:"due_at,omitzero"`        // when it is handed out again
	Behind       int64     `json:"behind,omitempty"`       // the event that failed before it, for whose end it waits
}

// Outcomes returns the state of an event in each group of the namespace. It fails with
// posthorn.ErrNotFound for an event that is neither in the log, nor delayed, nor failed.
func (a *Admin) Outcomes(ctx context.Context, event int64) ([]Outcome, error) {
	if err := a.seeEvent(ctx, event); err != nil { // an outcome has errors, which may quote the event
		return nil, err
	}
	outcomes, err := rows[Outcome](ctx, a.db, "outcomes", "select * from posthorn.outcomes($1::text, $2::bigint) o where "+seenHandler, a.namespace, event, list(a.hidden))
	if len(a.hidden) > 0 {
		for i := range outcomes {
			outcomes[i].Behind = 0 // it may be of a stream that the caller does not see
		}
	}
	return outcomes, err
}
