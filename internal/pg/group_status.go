package pg

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// GroupStatus is where a group stands.
type GroupStatus struct {
	Namespace     string     `json:"namespace"`
	Group         string     `json:"group"`
	Order         string     `json:"order"`
	Paused        bool       `json:"paused"`
	Position      int64      `json:"position"`    // the last id it was handed
	LagEvents     int64      `json:"lag_events"`  // an estimate beyond 10,000
	LagSeconds    float64    `json:"lag_seconds"` // age of the oldest event that it was not handed
	OldestPending *time.Time `json:"oldest_pending"`
	Leases        int64      `json:"leases"`
	ExpiredLeases int64      `json:"expired_leases"`
	Retries       int64      `json:"retries"`
	BlockedSlots  int64      `json:"blocked_slots"`
	DeadLetters   int64      `json:"dead_letters"`

	// The oldest open transaction, which may be why the group does not move.
	HeldByPID         *int32  `json:"held_by_pid,omitempty"` // nil for a prepared one
	HeldForSeconds    float64 `json:"held_for_seconds,omitempty"`
	HeldByApplication string  `json:"held_by_application,omitempty"`
}

const selectGroupStatus = `
	select namespace, group_name, ordering, paused, position, lag_events, lag_seconds::float8, oldest_pending,
		leases, expired_leases, retries, blocked_slots, dead_letters,
		held_by_pid, coalesce(extract(epoch from held_for), 0)::float8, coalesce(held_by_application, '')
	from posthorn.group_status
	where namespace = $1::text and group_name = coalesce($2::text, group_name)
	order by group_name`

// ListGroups returns where the groups of a namespace stand, by name.
func ListGroups(ctx context.Context, db DB, namespace string) ([]GroupStatus, error) {
	return list(ctx, db, "list groups", pgx.RowToStructByPos[GroupStatus], selectGroupStatus, namespace, nil)
}

// StatusOfGroup returns where one group stands.
func StatusOfGroup(ctx context.Context, db DB, namespace, group string) (GroupStatus, error) {
	found, err := list(ctx, db, "show group", pgx.RowToStructByPos[GroupStatus], selectGroupStatus, namespace, group)
	if err != nil {
		return GroupStatus{}, err
	}
	if len(found) == 0 {
		return GroupStatus{}, fmt.Errorf("show group: %w", noGroup(namespace, group))
	}
	return found[0], nil
}

// GroupPolicy is how a group treats its events, as it is set now.
type GroupPolicy struct {
	Slots         int       `json:"slots"`
	Attempts      int       `json:"attempts"` // 0: no limit
	Delays        []string  `json:"delays,omitempty"`
	BackoffFrom   string    `json:"backoff_from"`
	BackoffTo     string    `json:"backoff_to"`
	BackoffFactor float64   `json:"backoff_factor"`
	BackoffJitter float64   `json:"backoff_jitter"`
	OnFailure     string    `json:"on_failure"`
	ReadAhead     int       `json:"read_ahead"`
	CreatedAt     time.Time `json:"created_at"`
}

// PolicyOfGroup returns how a group treats its events.
func PolicyOfGroup(ctx context.Context, db DB, namespace, group string) (GroupPolicy, error) {
	found, err := list(ctx, db, "show group", pgx.RowToStructByPos[GroupPolicy], `
		select g.slots, g.attempts, g.delays::text[], g.backoff_from::text, g.backoff_to::text,
			g.backoff_factor, g.backoff_jitter, g.on_failure, g.read_ahead, g.created_at
		from posthorn.groups g
		join posthorn.namespaces n on n.id = g.namespace_id
		where n.namespace = $1::text and g.name = $2::text`, namespace, group)
	if err != nil {
		return GroupPolicy{}, err
	}
	if len(found) == 0 {
		return GroupPolicy{}, fmt.Errorf("show group: %w", noGroup(namespace, group))
	}
	return found[0], nil
}
