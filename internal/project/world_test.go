package project_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// projected is a database with a client and the table of a projection: each event that
// was applied is a row, numbered in the order in which that happened.
type projected struct{ *testworld.World }

const appliedTable = "create table %s (n bigint generated always as identity, event bigint not null)"

func newProjected(t *testing.T) *projected {
	t.Helper()
	p := &projected{testworld.New(t)}
	p.Exec(fmt.Sprintf(appliedTable, "applied"))
	return p
}

// keep adds the projection totals to a client; it writes to a table.
func keep(ph *posthorn.Client, table string) {
	ph.Project("totals", "order.>", quick, into(table))
}

// quick retries soon. Its lease is over only when a test says so.
var quick = posthorn.ProjectionConfig{
	Backoff:  posthorn.Backoff{From: 10 * time.Millisecond, To: 50 * time.Millisecond},
	LeaseFor: time.Hour,
	IdlePoll: 10 * time.Millisecond,
}

// into notes the events in a table.
func into(table string) posthorn.ApplyFunc {
	return func(ctx context.Context, tx pgx.Tx, events []posthorn.Event) error {
		_, err := tx.Exec(ctx, "insert into "+table+" (event) select unnest($1::bigint[])", ids(events))
		return err
	}
}

func ids(events []posthorn.Event) []int64 {
	var all []int64
	for _, e := range events {
		all = append(all, e.ID)
	}
	return all
}

func (p *projected) publish(n int) []int64 {
	p.T.Helper()
	return p.publishIn(p.Pool(), n)
}

func (p *projected) publishIn(db posthorn.DB, n int) []int64 {
	p.T.Helper()
	published, err := p.Publish(p.T.Context(), db, slices.Repeat([]posthorn.Message{{Type: "order.placed"}}, n)...)
	if err != nil {
		p.T.Fatal(err)
	}
	return published
}

// in returns the events of a table, in the order in which they were applied.
func (p *projected) in(table string) []int64 {
	p.T.Helper()
	return testworld.Column[int64](p, "select event from "+table+" order by n")
}

// awaitApplied waits until so many events are applied.
func (p *projected) awaitApplied(table string, n int) {
	p.T.Helper()
	await.True(p.T, fmt.Sprintf("%d events in %s", n, table), func() bool { return len(p.in(table)) >= n })
}

// status returns where a projection stands; it is empty while there is none.
func (p *projected) status(name string) admin.ProjectionStatus {
	p.T.Helper()
	all, err := p.Admin().Projections(p.T.Context())
	if err != nil {
		p.T.Fatal(err)
	}
	for _, s := range all {
		if s.Projection == name {
			return s
		}
	}
	return admin.ProjectionStatus{}
}

// wantApplied checks that a table holds each event once, once all are there.
func (p *projected) wantApplied(table string, want []int64) {
	p.T.Helper()
	p.awaitApplied(table, len(want))
	await.True(p.T, "up to date", func() bool { s := p.status("totals"); return s.LagEvents == 0 })
	got := slices.Sorted(slices.Values(p.in(table)))
	if diff := cmp.Diff(slices.Sorted(slices.Values(want)), got); diff != "" {
		p.T.Errorf("events in %s (-want +got):\n%s", table, diff)
	}
}

// load publishes from several connections at once, with transactions that
// overlap, commit late or roll back, until it is stopped.
type load struct {
	stop chan struct{}
	done sync.WaitGroup

	mu        sync.Mutex
	published []int64
}

func (p *projected) load() *load {
	l := &load{stop: make(chan struct{})}
	for i := range 3 {
		l.done.Go(func() {
			for n := i; ; n++ {
				for range 1 + n/2 { // ever slower, so that any machine keeps up
					await.Pause()
				}
				select {
				case <-l.stop:
					return
				default:
					l.publish(p, n)
				}
			}
		})
	}
	p.T.Cleanup(func() { l.end() })
	return l
}

var errRollback = fmt.Errorf("rolled back on purpose")

// publish publishes in one transaction before and after another has committed.
func (l *load) publish(p *projected, n int) {
	var kept []int64
	err := pgx.BeginFunc(context.Background(), p.Pool(), func(tx pgx.Tx) error {
		first, err := p.Publish(context.Background(), tx, posthorn.Message{Type: "order.placed"}, posthorn.Message{Type: "order.paid"})
		if err != nil {
			return err
		}
		between, err := p.Publish(context.Background(), p.Pool(), posthorn.Message{Type: "order.placed"})
		if err != nil {
			return err
		}
		l.note(between)
		last, err := p.Publish(context.Background(), tx, posthorn.Message{Type: "order.shipped.late"})
		if err != nil {
			return err
		}
		if n%5 == 0 {
			return errRollback
		}
		kept = slices.Concat(first, last)
		return nil
	})
	switch err {
	case nil:
		l.note(kept)
	case errRollback:
	default:
		p.T.Errorf("publish: %v", err)
	}
}

func (l *load) note(published []int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.published = append(l.published, published...)
}

// count is how many events are published by now.
func (l *load) count() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.published)
}

// end stops publishing and returns all that was published.
func (l *load) end() []int64 {
	l.mu.Lock()
	select {
	case <-l.stop:
	default:
		close(l.stop)
	}
	l.mu.Unlock()
	l.done.Wait()
	return l.published
}

// dying is into, but the server ends the connection of some batches, counted from
// 1, when they are written.
func dying(table string, batches ...int64) posthorn.ApplyFunc {
	var n atomic.Int64
	return func(ctx context.Context, tx pgx.Tx, events []posthorn.Event) error {
		if err := into(table)(ctx, tx, events); err != nil {
			return err
		}
		if slices.Contains(batches, n.Add(1)) {
			_, err := tx.Exec(ctx, "select pg_terminate_backend(pg_backend_pid())")
			return err
		}
		return nil
	}
}

// rebuild begins a rebuild of a projection, and returns when it is done.
func rebuild(ctx context.Context, ph *posthorn.Client, name string, config admin.RebuildConfig) error {
	if err := ph.Admin().RebuildProjection(ctx, name, config); err != nil {
		return err
	}
	return ph.Admin().AwaitRebuilt(ctx, name, nil)
}
