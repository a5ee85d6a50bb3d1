package admin

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// ProjectionStatus is the position of a projection, with its failure and its rebuild.
type ProjectionStatus struct {
	Namespace     string    `json:"namespace"`
	Projection    string    `json:"projection"`
	Replaces      string    `json:"replaces,omitempty"` // the projection whose place it takes when it has caught up
	Paused        bool      `json:"paused"`
	Position      int64     `json:"position"`    // every event up to this id is applied
	LagEvents     int64     `json:"lag_events"`  // events that it has not read yet; an estimate beyond 10,000
	LagSeconds    float64   `json:"lag_seconds"` // age of the first of them
	OldestPending time.Time `json:"oldest_pending,omitzero"`
	Node          string    `json:"node,omitempty"` // that applies its events now

	// Failures counts the attempts at the event that stops the projection; 0: no event
	// does.
	Failures    int       `json:"failures"`
	FailedEvent int64     `json:"failed_event,omitempty"`
	Error       string    `json:"error,omitempty" db:"seen_error"`
	FailedAt    time.Time `json:"failed_at,omitzero"`
	RetryAt     time.Time `json:"retry_at,omitzero"`

	// Rebuilding is true until the events are applied again that were in the log when
	// the rebuild began. RebuildDone and RebuildTotal are differences of ids.
	Rebuilding     bool      `json:"rebuilding"`
	RebuildDone    int64     `json:"rebuild_done"`
	RebuildTotal   int64     `json:"rebuild_total"`
	RebuildBeganAt time.Time `json:"rebuild_began_at,omitzero"`
	RebuiltAt      time.Time `json:"rebuilt_at,omitzero"`
}

var projections = kind[ProjectionStatus]{"projection", `
	select s.*, case when posthorn.stops_at(s.namespace, s.projection, $3::text[]) then '` + withheld + `' else s.error end as seen_error
	from posthorn.projection_status s
	where s.namespace = $1::text and s.projection = coalesce($2::text, s.projection) and ` + seen("group", "s.projection", "$3") + `
	order by s.projection`, keptByPrograms}

// Projections returns the statuses of the projections of the namespace, by name. A
// replacement that is being built is listed too.
func (a *Admin) Projections(ctx context.Context) ([]ProjectionStatus, error) {
	return projections.all(ctx, a)
}

// Projection returns the status of one projection.
func (a *Admin) Projection(ctx context.Context, name string) (ProjectionStatus, error) {
	return projections.named(ctx, a, name)
}

// RebuildConfig says how the tables of a projection are emptied. One of Truncate and
// Reset is required.
type RebuildConfig struct {
	// Truncate are tables, named as in SQL.
	Truncate []string
	// Reset empties the tables in another way. It may run more than once; all runs but
	// the last are rolled back.
	Reset func(ctx context.Context, tx pgx.Tx) error
	// Partial rebuilds from the events that are still in the log. Without it, a rebuild is
	// refused when retention has removed events that the projection had applied.
	Partial bool
}

// RebuildProjection empties a projection and moves it to the beginning of the log, in
// one transaction. The processes that run the projection apply the log to it again;
// [Admin.AwaitRebuilt] waits for that. Readers see a projection that is empty at first.
//
// RebuildProjection waits for transactions that read the tables.
func (a *Admin) RebuildProjection(ctx context.Context, name string, config RebuildConfig) error {
	db, ok := a.db.(interface {
		BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
	})
	switch {
	case !ok:
		return fmt.Errorf("rebuild projection: %w", pg.Invalid("it needs a pool or a connection", "It begins a transaction of its own."))
	case len(config.Truncate) == 0 && config.Reset == nil:
		return fmt.Errorf("rebuild projection: %w", pg.Invalid("it does not say how the tables are emptied", "Name them in Truncate, or give a function as Reset."))
	}
	return worker.Retry{}.Do(ctx, func(ctx context.Context) error {
		return pgx.BeginTxFunc(ctx, db, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
			return a.rebuild(ctx, tx, name, config)
		})
	})
}

func (a *Admin) rebuild(ctx context.Context, tx pgx.Tx, name string, config RebuildConfig) error {
	err := pg.Exec(ctx, tx, "rebuild projection", "select posthorn.rebuild_projection($1::text, $2::text, $3::boolean)", a.namespace, name, config.Partial)
	if err == nil && len(config.Truncate) > 0 {
		err = truncate(ctx, tx, config.Truncate)
	}
	if err == nil && config.Reset != nil {
		err = config.Reset(ctx, worker.HoldTx(tx))
	}
	return err
}

// truncate empties tables with the rights of the connected role. Postgres itself reads
// the names and quotes them.
func truncate(ctx context.Context, tx pgx.Tx, tables []string) error {
	quoted := make([]string, len(tables))
	for i, table := range tables {
		var err error
		if quoted[i], err = pg.Value[string](ctx, tx, "truncate "+table, `
			select format('%I.%I', n.nspname, c.relname)
			from pg_catalog.pg_class c
			join pg_catalog.pg_namespace n on n.oid = c.relnamespace
			where c.oid = $1::text::regclass`, table); err != nil {
			return err
		}
	}
	return pg.Exec(ctx, tx, "truncate", "truncate table "+strings.Join(quoted, ", "))
}

// progressInterval is the time between two looks at the progress of a rebuild.
const progressInterval = 250 * time.Millisecond

// AwaitRebuilt returns when the events are applied again that were in the log when the
// rebuild of a projection began. It calls progress, if that is not nil, at intervals and
// at the end.
func (a *Admin) AwaitRebuilt(ctx context.Context, name string, progress func(ProjectionStatus)) error {
	ticker := time.NewTicker(progressInterval)
	defer ticker.Stop()
	for {
		status, err := a.Projection(ctx, name)
		if err != nil {
			return err
		}
		if progress != nil {
			progress(status)
		}
		if !status.Rebuilding {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// AbandonReplacement gives up the replacement of a projection that a program has begun
// to build. The tables of the replacement stay.
func (a *Admin) AbandonReplacement(ctx context.Context, name string) error {
	if err := a.see(ctx, a.db, aGroup(name)); err != nil {
		return err
	}
	if err := a.refuseHidden(a.groupStreams(ctx, name)); err != nil { // the replacement is a group, and is deleted
		return err
	}
	return a.change(ctx, aGroup(name), entry{"abandon-replacement", name, nil}, "select posthorn.abandon_replacement($1::text, $2::text)", a.namespace, name)
}
