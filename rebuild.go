package posthorn

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// RebuildConfig says how a projection is to be rebuilt. Reset is required.
type RebuildConfig struct {
	// Reset empties the tables of the projection, in the transaction that moves
	// it to the beginning. It may run more than once.
	Reset func(ctx context.Context, tx pgx.Tx) error
	// Progress, if given, hears now and then how many of the IDs to replay are
	// done.
	Progress func(done, total int64)
	// Partial rebuilds from what the log still has. Without it a rebuild is
	// refused when retention has removed events that the projection had applied,
	// since it would lack them.
	Partial bool
}

// Rebuild empties a projection and lets it replay the log, and returns when
// everything is applied again that was in the log before. The replaying is done
// by the processes that keep the projection: one has to run. When ctx ends, only
// the waiting does.
//
// Readers see the projection grow anew. For one that they can read meanwhile see
// [Client.Replace]. Whoever reads the tables in a long transaction makes Reset
// wait.
func (c *Client) Rebuild(ctx context.Context, name string, config RebuildConfig) error {
	if config.Reset == nil {
		return fmt.Errorf("rebuild %s: %w", name, invalid("Reset is missing", "Give a function that empties the tables."))
	}
	err := c.again(ctx, func(tx pgx.Tx) error {
		if err := pg.RebuildProjection(ctx, tx, c.namespace, name, config.Partial); err != nil {
			return err
		}
		return config.Reset(ctx, worker.HoldTx(tx))
	})
	if err != nil {
		return fmt.Errorf("rebuild %s: %w", name, err)
	}
	c.watch.Published() // whoever keeps it has work
	return c.awaitRebuilt(ctx, name, config.Progress)
}

// lookEvery is how often progress is asked for.
const lookEvery = 250 * time.Millisecond

func (c *Client) awaitRebuilt(ctx context.Context, name string, progress func(done, total int64)) error {
	ticker := time.NewTicker(lookEvery)
	defer ticker.Stop()
	var total int64
	for {
		s, err := pg.StatusOfProjection(ctx, c.control, c.namespace, name)
		if err != nil {
			return fmt.Errorf("rebuild %s: %w", name, err)
		}
		done := s.RebuildDone
		if s.Rebuilding {
			total = s.RebuildTotal
		} else {
			done = total
		}
		if progress != nil {
			progress(done, total)
		}
		if !s.Rebuilding {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// again runs a transaction, again when it collided with another one: of a
// worker, which it waits for and which may wait for it.
func (c *Client) again(ctx context.Context, do func(tx pgx.Tx) error) error {
	return worker.Retry{}.Do(ctx, func(ctx context.Context) error {
		return pgx.BeginTxFunc(ctx, c.work, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, do)
	})
}
