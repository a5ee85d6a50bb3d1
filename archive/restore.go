package archive

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/worker"
)

// RestoreConfig selects the events to restore.
type RestoreConfig struct {
	// From leaves out events that were published earlier. Default: none.
	From time.Time
	// Progress is called after each batch with the number of restored events.
	Progress func(events int64)
}

const (
	restoreBatch = 5000
	restoreTries = 20
)

// Restore writes all events of the store, of all its namespaces, to the log of an
// installation without published events; ids and times stay. It returns the number of
// restored events. After an interruption, call it again: it goes on.
func (s *Store) Restore(ctx context.Context, db *pgxpool.Pool, config RestoreConfig) (int64, error) {
	r := Range{From: config.From}
	refs, err := s.segments(ctx, r)
	if err != nil {
		return 0, err
	}
	if len(refs) == 0 {
		return 0, refused("there is nothing to restore in "+s.location, "Check that the URL is the one that the archive was written to.")
	}
	upto, since := int64(0), time.Now()
	var namespaces, streams []string // with sealed events
	for _, ref := range refs {
		if len(ref.KeyVersions) > 0 {
			namespaces, streams = append(namespaces, ref.namespace), append(streams, ref.stream)
		}
		upto = max(upto, ref.Last)
		// The first event is not always the earliest, but all are of the same day.
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

// writeBatch writes a batch. It is repeated after a deadlock: it creates partitions
// and then locks the sequence, and a reader may lock both in the other order.
func writeBatch(ctx context.Context, db pg.DB, batch []pg.StoredEvent) error {
	return worker.Retry{Collisions: restoreTries}.Do(ctx, func(ctx context.Context) error {
		return pg.RestoreEvents(ctx, db, batch)
	})
}
