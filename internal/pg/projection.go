package pg

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// DefineProjection makes a projection, or changes how long it waits after a
// failure, and returns its group. It fails with [ErrConflict] when there is a
// group of that name which is none.
func DefineProjection(ctx context.Context, db DB, namespace, name string, backoff Backoff) (Group, error) {
	document, err := json.Marshal(map[string]Backoff{"backoff": backoff})
	if err != nil {
		return Group{}, translate("define projection", err)
	}
	id, err := one[int64](ctx, db, "define projection",
		"select posthorn.define_projection($1::text, $2::text, $3::jsonb)", namespace, name, string(document))
	return Group{id, namespace, name}, err
}

// SettleProjection settles the head of a projection's lease, from one event to
// another, in the transaction of their effect. It fails with [ErrLeaseLost] when
// the lease is not held any more, or begins with another event.
func SettleProjection(ctx context.Context, db DB, lease Lease, first, last int64, leaseFor time.Duration) error {
	return run(ctx, db, "settle projection", settleProjectionSQL, lease.ID, lease.Attempt, first, last, period(leaseFor))
}

const settleProjectionSQL = "select posthorn.settle_projection($1::bigint, $2::int, $3::bigint, $4::bigint, $5::text::interval)"

// FailProjection gives back a projection's lease whose first event cannot be
// applied, and returns when it is to be tried again.
func FailProjection(ctx context.Context, db DB, lease Lease, event int64, message string) (time.Time, error) {
	return one[time.Time](ctx, db, "fail projection",
		"select posthorn.fail_projection($1::bigint, $2::int, $3::bigint, $4::text)",
		lease.ID, lease.Attempt, event, storable(message))
}

// ProjectionStatus is where a projection stands.
type ProjectionStatus struct {
	Namespace     string     `json:"namespace"`
	Projection    string     `json:"projection"`
	Replaces      string     `json:"replaces,omitempty"` // the projection whose place it takes when it has caught up
	Paused        bool       `json:"paused"`
	Position      int64      `json:"position"`    // every event up to this id is applied
	LagEvents     int64      `json:"lag_events"`  // an estimate beyond 10,000
	LagSeconds    float64    `json:"lag_seconds"` // age of the first event that is not applied
	OldestPending *time.Time `json:"oldest_pending"`
	Node          string     `json:"node,omitempty"` // who works on it now

	Failures    int        `json:"failures"` // in a row, of one event; 0: it does not stand still
	FailedEvent *int64     `json:"failed_event,omitempty"`
	Error       string     `json:"error,omitempty"`
	FailedAt    *time.Time `json:"failed_at,omitempty"`
	RetryAt     *time.Time `json:"retry_at,omitempty"`

	Rebuilding     bool       `json:"rebuilding"`
	RebuildDone    int64      `json:"rebuild_done"` // of RebuildTotal, counted in ids
	RebuildTotal   int64      `json:"rebuild_total"`
	RebuildBeganAt *time.Time `json:"rebuild_began_at,omitempty"`
	RebuiltAt      *time.Time `json:"rebuilt_at,omitempty"`
}

const selectProjectionStatus = `
	select namespace, projection, coalesce(replaces, ''), paused, position, lag_events, lag_seconds::float8, oldest_pending,
		coalesce(node, ''), failures, failed_event, coalesce(error, ''), failed_at, retry_at,
		rebuilding, coalesce(rebuild_done, 0), coalesce(rebuild_total, 0), rebuild_began_at, rebuilt_at
	from posthorn.projection_status
	where namespace = $1::text and projection = coalesce($2::text, projection)
	order by projection`

// ListProjections returns where the projections of a namespace stand, by name.
func ListProjections(ctx context.Context, db DB, namespace string) ([]ProjectionStatus, error) {
	return list(ctx, db, "list projections", pgx.RowToStructByPos[ProjectionStatus], selectProjectionStatus, namespace, nil)
}

// StatusOfProjection returns where one projection stands.
func StatusOfProjection(ctx context.Context, db DB, namespace, name string) (ProjectionStatus, error) {
	found, err := list(ctx, db, "show projection", pgx.RowToStructByPos[ProjectionStatus], selectProjectionStatus, namespace, name)
	if err != nil {
		return ProjectionStatus{}, err
	}
	if len(found) == 0 {
		return ProjectionStatus{}, fmt.Errorf("show projection: %w", &Error{
			Message:  fmt.Sprintf("projection %q does not exist in namespace %s", name, namespace),
			sentinel: ErrNotFound,
			hint:     "It exists once a program that has it has run; look for it in another namespace.",
		})
	}
	return found[0], nil
}
