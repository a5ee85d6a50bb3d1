package pg

import (
	"context"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
)

// streams caches the names of streams, which never change and are never deleted. The zero
// value is ready to use, by any number of goroutines.
type streams struct {
	mu    sync.RWMutex
	names map[int64]string
}

// maxStreams bounds the cache: there may be a stream for each of a million users.
const maxStreams = 100_000

// name sets the streams of events, whose ids are given in the same order. It queries the
// database for streams that are not cached.
func (s *streams) name(ctx context.Context, db DB, events []Event, ids []int64) error {
	missing := s.cached(events, ids)
	if len(missing) == 0 {
		return nil
	}
	found, err := s.load(ctx, db, missing)
	if err != nil {
		return err
	}
	for i := range events {
		if events[i].Stream == "" {
			events[i].Stream = found[ids[i]]
		}
	}
	return nil
}

// cached sets the streams that are cached, and returns the ids of the others.
func (s *streams) cached(events []Event, ids []int64) []int64 {
	s.mu.RLock()
	defer s.mu.RUnlock()
	var missing []int64
	for i := range events {
		name, ok := s.names[ids[i]]
		if !ok {
			missing = append(missing, ids[i])
		}
		events[i].Stream = name
	}
	slices.Sort(missing)
	return slices.Compact(missing)
}

func (s *streams) load(ctx context.Context, db DB, ids []int64) (map[int64]string, error) {
	type stream struct {
		ID   int64
		Name string
	}
	rows, err := Collect(ctx, db, "look up streams", pgx.RowToStructByPos[stream],
		"select id, name from posthorn.streams where id = any ($1::bigint[])", ids)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.names == nil || len(s.names)+len(rows) > maxStreams {
		s.names = map[int64]string{}
	}
	found := map[int64]string{}
	for _, row := range rows {
		found[row.ID] = row.Name
		s.names[row.ID] = row.Name
	}
	return found, nil
}
