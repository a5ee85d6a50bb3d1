package project_test

import (
	"context"
	"fmt"
	"log/slog"
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
	"github.com/posthorn/posthorn/posthorntest"
)

// projected is a database with the table of a projection: each event that was
// applied is a row, numbered in the order in which that happened.
type projected struct {
	t   *testing.T
	url string
	ph  *posthorn.Client
}

const appliedTable = "create table %s (n bigint generated always as identity, event bigint not null)"

func newProjected(t *testing.T) *projected {
	t.Helper()
	p := &projected{t: t, url: posthorntest.Database(t)}
	p.ph = p.open()
	p.exec(fmt.Sprintf(appliedTable, "applied"))
	return p
}

// open opens another client, as another process would.
func (p *projected) open() *posthorn.Client {
	p.t.Helper()
	ph, err := posthorn.Open(p.t.Context(), posthorn.Config{DatabaseURL: p.url, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(ph.Close)
	return ph
}

// run runs a client until the function that it returns is called, or the test
// ends.
func (p *projected) run(ph *posthorn.Client) (stop func()) {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	done := make(chan error, 1)
	go func() { done <- ph.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			p.t.Errorf("run: %v", err)
		}
	})
	p.t.Cleanup(stop)
	return stop
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

func (p *projected) exec(sql string, args ...any) {
	p.t.Helper()
	if _, err := p.ph.Pool().Exec(p.t.Context(), sql, args...); err != nil {
		p.t.Fatalf("%s: %v", sql, err)
	}
}

func (p *projected) publish(n int) []int64 {
	p.t.Helper()
	return p.publishIn(p.ph.Pool(), n)
}

func (p *projected) publishIn(db posthorn.DB, n int) []int64 {
	p.t.Helper()
	published, err := p.ph.Publish(p.t.Context(), db, slices.Repeat([]posthorn.Message{{Type: "order.placed"}}, n)...)
	if err != nil {
		p.t.Fatal(err)
	}
	return published
}

// begin begins a transaction, which has a connection of its own.
func (p *projected) begin() pgx.Tx {
	p.t.Helper()
	conn, err := pgx.Connect(p.t.Context(), p.url)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { conn.Close(context.Background()) })
	tx, err := conn.Begin(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	return tx
}

// in returns the events of a table, in the order in which they were applied.
func (p *projected) in(table string) []int64 {
	p.t.Helper()
	rows, _ := p.ph.Pool().Query(p.t.Context(), "select event from "+table+" order by n")
	found, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		p.t.Fatal(err)
	}
	return found
}

// awaitApplied waits until so many events are applied.
func (p *projected) awaitApplied(table string, n int) {
	p.t.Helper()
	await.True(p.t, fmt.Sprintf("%d events in %s", n, table), func() bool { return len(p.in(table)) >= n })
}

// status returns where a projection stands; it is empty while there is none.
func (p *projected) status(name string) admin.ProjectionStatus {
	p.t.Helper()
	all, err := p.ph.Admin().Projections(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
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
	p.t.Helper()
	p.awaitApplied(table, len(want))
	await.True(p.t, "up to date", func() bool { s := p.status("totals"); return s.LagEvents == 0 })
	got := slices.Sorted(slices.Values(p.in(table)))
	if diff := cmp.Diff(slices.Sorted(slices.Values(want)), got); diff != "" {
		p.t.Errorf("events in %s (-want +got):\n%s", table, diff)
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
	p.t.Cleanup(func() { l.end() })
	return l
}

var errRollback = fmt.Errorf("rolled back on purpose")

// publish publishes in one transaction before and after another has committed.
func (l *load) publish(p *projected, n int) {
	var kept []int64
	err := pgx.BeginFunc(context.Background(), p.ph.Pool(), func(tx pgx.Tx) error {
		first, err := p.ph.Publish(context.Background(), tx, posthorn.Message{Type: "order.placed"}, posthorn.Message{Type: "order.paid"})
		if err != nil {
			return err
		}
		between, err := p.ph.Publish(context.Background(), p.ph.Pool(), posthorn.Message{Type: "order.placed"})
		if err != nil {
			return err
		}
		l.note(between)
		last, err := p.ph.Publish(context.Background(), tx, posthorn.Message{Type: "order.shipped.late"})
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
		p.t.Errorf("publish: %v", err)
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
