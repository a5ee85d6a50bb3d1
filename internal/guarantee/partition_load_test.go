package guarantee

import (
	"flag"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/test/await"
)

var rounds = flag.Int("partition.rounds", 4, "how many minutes TestPartitionsComeWhileGroupsRead takes, by the clock that it turns")

// Partitions are created minute by minute by several sessions, while groups read with
// cached plans. Each group receives every event once.
func TestPartitionsComeWhileGroupsRead(t *testing.T) {
	t.Parallel()
	const chosen = "chosen"
	s := database(t)
	start := value[time.Duration](s, "select max(upto) - now() from posthorn.partitions")
	s.turnClock(start)
	s.exec("update posthorn.config set value = '1 minute' where key = 'partition_interval'")
	s.exec("update posthorn.config set value = '1 minute' where key = 'future_intervals_to_create'")
	s.define("{}")
	s.exec("select posthorn.define_group('default', $1)", chosen)
	s.exec("select posthorn.subscribe('default', $1, 'n', $2::text::jsonb)", chosen, conditionFilter("e.payload ? 'n'", "{}"))

	var readers sync.WaitGroup
	var published atomic.Bool
	events := map[string]*[]int64{group: {}, chosen: {}}
	for name, read := range events {
		reader := s.another()
		readers.Go(func() {
			for all := false; !all; await.Pause() {
				all = published.Load() // an event that the claim below misses was not published
				for {
					l, err := reader.tryClaim(name, 1000)
					if err == nil && l.ID == 0 {
						break
					} else if err == nil {
						_, err = reader.conn.Exec(t.Context(), "select posthorn.settle($1, $2)", l.ID, l.Attempt)
					}
					if err != nil {
						t.Errorf("%s: %v", name, err)
						return
					}
					*read = append(*read, l.Events...)
				}
			}
		})
	}

	var want []int64
	upkeep := []*session{s.another(), s.another(), s.another()}
	for round := range *rounds {
		s.turnClock(start + time.Duration(round)*time.Minute)
		var outcomes []func() error
		for i, statement := range []string{"select posthorn.maintain_events_table()", "select posthorn.maintain_events_table()", "select posthorn.tend()"} {
			outcomes = append(outcomes, upkeep[i].background(statement))
		}
		for range 10 {
			want = append(want, column[int64](s, `select posthorn.publish('default', 'e', '{"n": 1}') from generate_series(1, 100)`)...)
		}
		for _, outcome := range outcomes {
			if err := outcome(); err != nil {
				t.Error(err)
			}
		}
	}
	published.Store(true)
	readers.Wait()
	for name, read := range events {
		slices.Sort(*read)
		if !slices.Equal(*read, want) {
			t.Errorf("%s read %d events, want %d", name, len(*read), len(want))
		}
	}
}
