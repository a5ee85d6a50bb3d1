package pg

import (
	"context"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
)

// streams remembers the names of streams, which never change and are never
// deleted. Its zero value is ready to use, by any number of goroutines.
type streams struct {
	mu    sync.RWMutex
	names map[int64]string
}

// There may be a stream for each of a million users: not all of them are kept.
const maxStreams = 100_000

// name fills in the streams of events, whose ids are given in the same order.
// Those that nobody has asked for before cost a query.
func (s *streams) name(ctx context.Context, db DB, events []Event, ids []int64) error {
	missing := s.recall(events, ids)
	if len(missing) == 0 {
		return nil
	}
	found, err := s.learn(ctx, db, missing)
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

// recall fills in what is known, and returns the ids that are not.
func (s *streams) recall(events []Event, ids []int64) []int64 {
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

func (s *streams) learn(ctx context.Context, db DB, ids []int64) (map[int64]string, error) {
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
