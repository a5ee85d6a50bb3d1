package admin

import (
	"context"
	"time"
)

// GroupLease is a batch of a group that a worker has.
type GroupLease struct {
	ID        int64     `json:"lease" db:"lease"`
	Node      string    `json:"node,omitempty"`
	Attempt   int       `json:"attempt"`
	Events    int64     `json:"events"`  // an estimate beyond 1,000
	Retries   bool      `json:"retries"` // they have failed before
	ClaimedAt time.Time `json:"claimed_at"`
	Until     time.Time `json:"until"`
}

// GroupLeases returns batches of a group that workers have: those that end first.
func (a *Admin) GroupLeases(ctx context.Context, group string, limit int) ([]GroupLease, error) {
	if err := a.see(ctx, a.db, aGroup(group)); err != nil {
		return nil, err
	}
	return rows[GroupLease](ctx, a.db, "list leases", "select * from posthorn.group_leases($1::text, $2::text, $3::int)", a.namespace, group, limit)
}

// GroupRetry is an event of a group that has failed and is tried again, or one that waits
// behind it.
type GroupRetry struct {
	EventID      int64     `json:"event_id"`
	Subscription string    `json:"subscription,omitempty"`
	Attempts     int       `json:"attempts"`
	FailedAt     time.Time `json:"failed_at,omitzero"` // of the last attempt; zero if none has failed
	DueAt        time.Time `json:"due_at"`
	Running      bool      `json:"running"`          // a worker has it
	Error        string    `json:"error,omitempty"`  // its beginning
	Behind       int64     `json:"behind,omitempty"` // the event whose end it waits for
}

// GroupRetries returns the oldest events of a group that have failed and are tried
// again.
func (a *Admin) GroupRetries(ctx context.Context, group string, limit int) ([]GroupRetry, error) {
	if err := a.see(ctx, a.db, aGroup(group)); err != nil {
		return nil, err
	}
	return rows[GroupRetry](ctx, a.db, "list retries", "select * from posthorn.group_retries($1::text, $2::text, $3::int, $4::text[])", a.namespace, group, limit, list(a.hidden))
}

// GroupReader is a live node with the handlers that it has for a group.
type GroupReader struct {
	Node     string   `json:"node"`
	Handler  string   `json:"handler"`
	Patterns []string `json:"patterns"`
}

// GroupReaders returns the handlers of live nodes for a group.
func (a *Admin) GroupReaders(ctx context.Context, group string) ([]GroupReader, error) {
	if err := a.see(ctx, a.db, aGroup(group)); err != nil {
		return nil, err
	}
	return rows[GroupReader](ctx, a.db, "list readers", `
		select r.* from posthorn.group_handlers($1::text, $2::text) r
		where not posthorn.is_hidden($1::text, $3::text[], 'subscription', r.handler, $2::text)`, a.namespace, group, list(a.hidden))
}
