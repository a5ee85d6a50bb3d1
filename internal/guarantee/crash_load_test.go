package guarantee

import (
	"context"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// acknowledged publishes until its connection breaks, and returns the ids that were
// acknowledged. It signals after each of them.
func acknowledged(ctx context.Context, url string, signal chan<- struct{}) []int64 {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return nil
	}
	defer conn.Close(ctx)
	var events []int64
	for {
		var id int64
		if err := conn.QueryRow(ctx, "select posthorn.publish('default', 'order.placed')").Scan(&id); err != nil {
			return events
		}
		events = append(events, id)
		signal <- struct{}{}
	}
}

// claimAndSettle claims and settles until its connection breaks.
func claimAndSettle(ctx context.Context, url string) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return
	}
	defer conn.Close(ctx)
	for {
		_, err := conn.Exec(ctx, `select posthorn.settle(l.lease, l.attempt)
			from (select distinct lease, attempt from posthorn.claim('default', 'billing', 'w', 10)) l`)
		if err != nil {
			return
		}
	}
}

// The server crashes while hundreds of events are being published and claimed.
func crashLosesNothingThatWasAcknowledged(t *testing.T, own *ownDatabase) {
	s := own.session()
	s.define("{}")
	s.exec("select posthorn.define_group('default', 'reader', '{\"order\": \"key\"}')")

	var mu sync.Mutex
	var events []int64
	var clients sync.WaitGroup
	signal := make(chan struct{}, 1_000_000)
	for range 4 {
		clients.Go(func() {
			mine := acknowledged(t.Context(), own.url(), signal)
			mu.Lock()
			defer mu.Unlock()
			events = append(events, mine...)
		})
	}
	clients.Go(func() { claimAndSettle(t.Context(), own.url()) })
	for range 300 {
		<-signal
	}
	own.crash()
	clients.Wait()

	s = own.session()
	logged := column[int64](s, "select id from posthorn.events order by id")
	slices.Sort(events)
	for _, e := range events {
		if _, ok := slices.BinarySearch(logged, e); !ok {
			t.Errorf("event %d was acknowledged and is not in the log", e)
		}
	}
	// Events that the worker had settled before the crash may be handed out again.
	// The other group gets every event once.
	got := s.drainGroup("reader")
	slices.Sort(got)
	equal(t, "events of the second group", got, logged)
	s.expire()
	s.drain()
	equal(t, "groups with pending events", column[string](s, `
		select format('%s: %s behind, %s leased, %s retried; leases %s; cursor %s', g.group_name, g.lag_events, g.leases, g.retries,
			(select json_agg(l) from posthorn.leases l), (select json_agg(c) from posthorn.cursors c))
		from posthorn.group_status g where lag_events + leases + retries > 0`), []string{})
}
