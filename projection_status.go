package posthorn

import (
	"context"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// ProjectionStatus is where a projection stands.
type ProjectionStatus struct {
	Namespace     string     `json:"namespace"`
	Projection    string     `json:"projection"`
	Replaces      string     `json:"replaces,omitempty"` // the projection whose place it takes when it has caught up
	Paused        bool       `json:"paused"`
	Position      int64      `json:"position"`    // every event up to this ID is applied
	LagEvents     int64      `json:"lag_events"`  // events it has yet to look at: an estimate beyond 10,000
	LagSeconds    float64    `json:"lag_seconds"` // age of the first of them
	OldestPending *time.Time `json:"oldest_pending"`
	Node          string     `json:"node,omitempty"` // who works on it now

	// Failures counts the attempts at the event at which it stands still; 0 when
	// it does not.
	Failures    int        `json:"failures"`
	FailedEvent *int64     `json:"failed_event,omitempty"`
	Error       string     `json:"error,omitempty"`
	FailedAt    *time.Time `json:"failed_at,omitempty"`
	RetryAt     *time.Time `json:"retry_at,omitempty"`

	// Rebuilding holds until everything is applied again that was in the log when
	// the rebuild began. RebuildDone and RebuildTotal are counted in IDs.
	Rebuilding     bool       `json:"rebuilding"`
	RebuildDone    int64      `json:"rebuild_done"`
	RebuildTotal   int64      `json:"rebuild_total"`
	RebuildBeganAt *time.Time `json:"rebuild_began_at,omitempty"`
	RebuiltAt      *time.Time `json:"rebuilt_at,omitempty"`
}

// Projections returns where the projections of the namespace stand, by name. The
// replacement of one that is being replaced is listed too.
func (c *Client) Projections(ctx context.Context) ([]ProjectionStatus, error) {
	found, err := pg.ListProjections(ctx, c.control, c.namespace)
	if err != nil {
		return nil, err
	}
	all := make([]ProjectionStatus, len(found))
	for i := range found {
		all[i] = ProjectionStatus(found[i])
	}
	return all, nil
}

// Status returns where the projection stands. It is not found until a program
// that has it has run.
func (p *Projection) Status(ctx context.Context) (ProjectionStatus, error) {
	s, err := pg.StatusOfProjection(ctx, p.client.control, p.client.namespace, p.name)
	return ProjectionStatus(s), err
}

// Lag returns how many events the projection has yet to look at, and how old the
// first of them is.
func (p *Projection) Lag(ctx context.Context) (pending int64, age time.Duration, err error) {
	s, err := p.Status(ctx)
	return s.LagEvents, time.Duration(s.LagSeconds * float64(time.Second)), err
}
