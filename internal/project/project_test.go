package project_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// A projection applies the events that were published before it was defined, in any
// order: seed 002.30.
func TestProjectionStartsAtTheBeginning(t *testing.T) {
	t.Parallel()
	p := newProjected(t)
	want := p.publish(2500)
	if _, err := p.Publish(t.Context(), p.Pool(), posthorn.Message{Type: "invoice.sent"}); err != nil {
		t.Fatal(err)
	}
	want = append(want, p.publish(1)...)
	keep(p.Client, "applied")
	p.Start()
	p.awaitApplied("applied", len(want))
	if diff := cmp.Diff(want, p.in("applied")); diff != "" {
		t.Errorf("events in order (-want +got):\n%s", diff)
	}
}

// Seed 002.30: an event that is committed late is not skipped.
func TestProjectionAppliesLateEvents(t *testing.T) {
	t.Parallel()
	p := newProjected(t)
	late := p.Begin()
	first := p.publishIn(late, 1)
	later := p.publish(1)
	keep(p.Client, "applied")
	p.Start()
	p.awaitApplied("applied", 1)
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.awaitApplied("applied", 2)
	if diff := cmp.Diff(slices.Concat(later, first), p.in("applied")); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
}

// Seed 002.30: one worker at a time, over all nodes, under load.
func TestProjectionHasOneWorkerAtATime(t *testing.T) {
	t.Parallel()
	p := newProjected(t)
	var inside, most atomic.Int64
	var stops []func()
	for range 3 {
		ph := p.OpenWith(posthorn.Config{})
		ph.Project("totals", "order.>", quick, func(ctx context.Context, tx pgx.Tx, events []posthorn.Event) error {
			most.Store(max(most.Load(), inside.Add(1)))
			defer inside.Add(-1)
			return into("applied")(ctx, tx, events)
		})
		stops = append(stops, testworld.Run(p.T, ph))
	}
	load := p.load()
	p.awaitApplied("applied", 100)
	stops[0]() // another process continues its lease
	n := len(p.in("applied"))
	p.awaitApplied("applied", n+100)
	p.wantApplied("applied", load.end())
	if most.Load() != 1 {
		t.Errorf("%d workers at a time", most.Load())
	}
}

// Seed 002.30: a failure stops the projection where it happened; the status says
// so; nothing is skipped, however often it fails.
func TestProjectionStandsStillAtAFailure(t *testing.T) {
	t.Parallel()
	p := newProjected(t)
	published := p.publish(200)
	bad := published[120]
	var mended atomic.Bool
	p.Project("totals", "order.>", quick, func(ctx context.Context, tx pgx.Tx, events []posthorn.Event) error {
		if err := into("applied")(ctx, tx, events); err != nil {
			return err
		}
		if !mended.Load() && slices.Contains(ids(events), bad) {
			return errors.New("no such product")
		}
		return nil
	})
	p.Start()
	await.True(t, "ten failures", func() bool { return p.status("totals").Failures >= 10 })
	s, err := p.Admin().Projection(t.Context(), "totals")
	if err != nil {
		t.Fatal(err)
	}
	if s.FailedEvent != bad || s.Error != "no such product" || s.Position != bad-1 || s.LagEvents != 80 || s.LagSeconds <= 0 {
		t.Errorf("status is %+v, want it to stand still before event %d", s, bad)
	}
	if diff := cmp.Diff(published[:120], p.in("applied")); diff != "" {
		t.Errorf("applied before the failure (-want +got):\n%s", diff)
	}
	mended.Store(true)
	p.awaitApplied("applied", len(published))
	if diff := cmp.Diff(published, p.in("applied")); diff != "" {
		t.Errorf("applied in the end (-want +got):\n%s", diff)
	}
	await.True(t, "no failure", func() bool { s := p.status("totals"); return s.Failures == 0 && s.Error == "" })
}

// A node that starts may have the code that resolves the failure: it does not wait for
// the next attempt to be due.
func TestProjectionTriesAtOnceWhenANodeStarts(t *testing.T) {
	t.Parallel()
	p := newProjected(t)
	p.publish(1)
	slow := quick
	slow.Backoff = posthorn.Backoff{From: time.Hour, To: time.Hour}
	broken := p.OpenWith(posthorn.Config{})
	broken.Project("totals", "order.>", slow, func(context.Context, pgx.Tx, []posthorn.Event) error { return errors.New("broken") })
	stop := testworld.Run(p.T, broken)
	await.True(t, "a failure", func() bool { return p.status("totals").Failures > 0 })
	stop()
	keep(p.Client, "applied")
	p.Start()
	p.awaitApplied("applied", 1)
}

// A panic and a swallowed error are failures like others.
func TestProjectionFailures(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		apply posthorn.ApplyFunc
		want  string
	}{
		"panic": {
			func(context.Context, pgx.Tx, []posthorn.Event) error { panic("oops") },
			"panic: oops",
		},
		"swallowed": {
			func(ctx context.Context, tx pgx.Tx, _ []posthorn.Event) error {
				tx.Exec(ctx, "select 1/0")
				return nil
			},
			"a statement failed in the transaction, and no error was returned",
		},
		"commit": {
			func(ctx context.Context, tx pgx.Tx, _ []posthorn.Event) error {
				_, err := tx.Exec(ctx, "insert into deferred values (1), (1)")
				return err
			},
			`commit: ERROR: duplicate key value violates unique constraint "deferred_n_key" (SQLSTATE 23505)`,
		},
		"own commit": {
			func(ctx context.Context, tx pgx.Tx, _ []posthorn.Event) error { return tx.Commit(ctx) },
			"this transaction is committed or rolled back by whether the function returns an error",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProjected(t)
			p.Exec("create table deferred (n int unique deferrable initially deferred)")
			p.publish(1)
			p.Project("totals", "order.>", quick, tt.apply)
			p.Start()
			await.True(t, "a failure", func() bool { return p.status("totals").Failures > 1 })
			if got := p.status("totals").Error; got != tt.want {
				t.Errorf("error is %q, want %q", got, tt.want)
			}
		})
	}
}

// A batch that takes too long ends, and is tried again in smaller ones, also where its function ignores that a statement was cut off.
func TestProjectionTimeout(t *testing.T) {
	t.Parallel()
	for _, ignored := range []bool{false, true} {
		t.Run(fmt.Sprintf("ignored %v", ignored), func(t *testing.T) {
			t.Parallel()
			p := newProjected(t)
			want := p.publish(4)
			if _, err := p.Begin().Exec(t.Context(), "select pg_advisory_xact_lock(1)"); err != nil { // until the test ends
				t.Fatal(err)
			}
			config := quick
			config.Timeout = 5 * time.Second // longer than the statement takes to begin
			p.Project("totals", "order.>", config, func(ctx context.Context, tx pgx.Tx, events []posthorn.Event) error {
				if len(events) > 1 {
					if _, err := tx.Exec(ctx, "select pg_advisory_xact_lock(1)"); !ignored {
						return err
					}
					return nil
				}
				return into("applied")(ctx, tx, events)
			})
			p.Start()
			p.wantApplied("applied", want)
		})
	}
}

// A batch that takes longer than its lease lasts keeps it.
func TestProjectionKeepsItsLease(t *testing.T) {
	t.Parallel()
	p := newProjected(t)
	want := p.publish(1)
	move := (&testworld.World{Client: p.Client, T: t, URL: p.URL}).StopClock()
	begun, release := make(chan bool, 2), make(chan struct{})
	config := quick
	config.LeaseFor = time.Second
	for range 2 {
		ph := p.OpenWith(posthorn.Config{})
		ph.Project("totals", "order.>", config, func(ctx context.Context, tx pgx.Tx, events []posthorn.Event) error {
			begun <- true
			<-release
			return into("applied")(ctx, tx, events)
		})
		testworld.Run(p.T, ph)
	}
	await.Value(t, "a batch", begun)
	for range 2 {
		move(config.LeaseFor * 3 / 4)
		await.True(t, "the lease is extended", func() bool {
			var extended bool
			err := p.Pool().QueryRow(t.Context(), "select exists (select from posthorn.leases where until = posthorn.now() + $1)", config.LeaseFor).Scan(&extended)
			if err != nil {
				t.Fatal(err)
			}
			return extended
		})
	}
	close(release)
	p.wantApplied("applied", want)
	if len(begun) > 0 {
		t.Error("another batch has begun")
	}
}

func TestProjectionsAreChecked(t *testing.T) {
	t.Parallel()
	p := newProjected(t)
	apply := into("applied")
	for name, set := range map[string]func(ph *posthorn.Client){
		"no function": func(ph *posthorn.Client) { ph.Project("totals", "order.>", quick, nil) },
		"no pattern":  func(ph *posthorn.Client) { ph.Project("totals", " ,", quick, apply) },
		"bad pattern": func(ph *posthorn.Client) { ph.Project("totals", "order.>.x", quick, apply) },
		"batch size": func(ph *posthorn.Client) {
			ph.Project("totals", ">", posthorn.ProjectionConfig{BatchSize: 1001}, apply)
		},
		"short lease":  func(ph *posthorn.Client) { ph.Project("totals", ">", posthorn.ProjectionConfig{LeaseFor: 1}, apply) },
		"the name":     func(ph *posthorn.Client) { ph.Project("", ">", quick, apply) },
		"twice":        func(ph *posthorn.Client) { keep(ph, "applied"); keep(ph, "applied") },
		"a group's":    func(ph *posthorn.Client) { ph.Group("totals", posthorn.GroupConfig{}); keep(ph, "applied") },
		"zero backoff": func(ph *posthorn.Client) { c := quick; c.Backoff.Factor = 0.5; ph.Project("totals", ">", c, apply) },
	} {
		t.Run(name, func(t *testing.T) {
			ph := p.OpenWith(posthorn.Config{})
			set(ph)
			if err := ph.Run(t.Context()); !errors.Is(err, posthorn.ErrInvalid) {
				t.Errorf("Run returned %v, want ErrInvalid", err)
			}
		})
	}
}

// The name of a projection is its own: a group would take events away from it.
func TestProjectionIsNoGroup(t *testing.T) {
	t.Parallel()
	p := newProjected(t)
	keep(p.Client, "applied")
	want := p.publish(1)
	p.Start()
	p.wantApplied("applied", want)

	group := p.OpenWith(posthorn.Config{})
	group.Group("totals", posthorn.GroupConfig{}).Handle("all", ">", func(context.Context, posthorn.Event) error { return nil })
	if err := group.Run(t.Context()); !errors.Is(err, posthorn.ErrRefused) {
		t.Errorf("Run of a group with that name returned %v, want ErrRefused", err)
	}
	if err := p.Admin().Seek(t.Context(), "totals", posthorn.Beginning); !errors.Is(err, posthorn.ErrRefused) {
		t.Errorf("Seek returned %v, want ErrRefused", err)
	}
}

func TestProjectionOnANameOfAGroup(t *testing.T) {
	t.Parallel()
	p := newProjected(t)
	p.Exec("select posthorn.define_group('default', 'totals')")
	keep(p.Client, "applied")
	if err := p.Run(t.Context()); !errors.Is(err, posthorn.ErrConflict) {
		t.Errorf("Run returned %v, want ErrConflict", err)
	}
}

func TestProjectionLag(t *testing.T) {
	t.Parallel()
	p := newProjected(t)
	keep(p.Client, "applied")
	if _, err := p.Admin().Projection(t.Context(), "totals"); !errors.Is(err, posthorn.ErrNotFound) {
		t.Errorf("before the first run: %v, want ErrNotFound", err)
	}
	stop := p.Start()
	p.wantApplied("applied", p.publish(3))
	stop()
	p.publish(5)
	s, err := p.Admin().Projection(t.Context(), "totals")
	if err != nil || s.LagEvents != 5 || s.LagSeconds <= 0 {
		t.Errorf("lag is %d events, %v seconds: %v; want 5 events and some time", s.LagEvents, s.LagSeconds, err)
	}
}
