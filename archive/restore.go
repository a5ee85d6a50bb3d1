package archive

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// RestoreConfig is what to restore.
type RestoreConfig struct {
	// From leaves out what was published before; default: nothing.
	From time.Time
	// Progress is told after each batch how many events were restored.
	Progress func(events int64)
}

const (
	restoreBatch = 5000
	restoreTries = 20
)

// Restore writes all events of the store, of all its namespaces, to the log of an
// installation in which nothing was published: with their ids and times. It returns
// how many it restored. Ended anyhow and called again, it goes on.
func (s *Store) Restore(ctx context.Context, db *pgxpool.Pool, config RestoreConfig) (int64, error) {
	r := Range{From: config.From}
	refs, err := s.segments(ctx, r)
	if err != nil {
		return 0, err
	}
	if len(refs) == 0 {
		return 0, refused("there is nothing to restore in "+s.location, "Look whether the URL is the one that the archive was written to.")
	}
	upto, since := int64(0), time.Now()
	var namespaces, streams []string // with sealed events
	for _, ref := range refs {
		if len(ref.KeyVersions) > 0 {
			namespaces, streams = append(namespaces, ref.namespace), append(streams, ref.stream)
		}
		upto = max(upto, ref.Last)
		// Of the first event, which is not always the earliest: its day is.
		if first := ref.FirstAt.UTC().Truncate(24 * time.Hour); first.Before(since) {
			since = first
		}
	}
	if config.From.After(since) {
		since = config.From
	}
	if err := pg.CheckConfidential(ctx, db, namespaces, streams); err != nil {
		return 0, err
	}
	position, err := pg.BeginRestore(ctx, db, s.location, upto, since)
	if err != nil {
		return 0, err
	}
	r.FromID = position + 1
	n := int64(0)
	for batch, err := range batches(s.merge(ctx, after(refs, r.FromID), r), restoreBatch) {
		if err != nil {
			return n, err
		}
		if err := writeBatch(ctx, db, batch); err != nil {
			return n, err
		}
		n += int64(len(batch))
		if config.Progress != nil {
			config.Progress(n)
		}
	}
	return n, pg.EndRestore(ctx, db)
}

// writeBatch writes a batch. It locks the sequence after it may have made
// partitions, and a reader may do it the other way round: then it begins again.
func writeBatch(ctx context.Context, db pg.DB, batch []pg.StoredEvent) error {
	return worker.Retry{Collisions: restoreTries}.Do(ctx, func(ctx context.Context) error {
		return pg.RestoreEvents(ctx, db, batch)
	})
}
