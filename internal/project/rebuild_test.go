package project_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

func emptied(with string) func(ctx context.Context, tx pgx.Tx) error {
	return func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, with)
		return err
	}
}

// Seed 002.30: rebuilt in place while others publish, with transactions that
// commit late and a worker that dies in the middle, a projection has every event
// once. The tables may be emptied in either way: a delete does not see the
// rows of an uncommitted batch.
func TestRebuildUnderLoad(t *testing.T) {
	t.Parallel()
	for name, reset := range map[string]string{"truncate": "truncate applied", "delete": "delete from applied"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProjected(t)
			config := quick
			config.BatchSize = 50
			p.Project("totals", "order.>", config, dying("applied", 5, 12, 20))
			p.Start()
			other := p.OpenWith(posthorn.Config{})
			keep(other, "applied")
			testworld.Run(p.T, other)
			late := p.Begin()
			want := p.publishIn(late, 3)
			load := p.load()
			for i := range 3 {
				await.True(t, "more to replay", func() bool { return load.count() > 100*i+100 })
				if err := rebuild(t.Context(), p.Client, "totals", admin.RebuildConfig{Reset: emptied(reset)}); err != nil {
					t.Fatal(err)
				}
			}
			want = append(want, load.end()...)
			if err := late.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			p.wantApplied("applied", want)
		})
	}
}

// Replaying shows as progress, until it is done.
func TestRebuildProgress(t *testing.T) {
	t.Parallel()
	p := newProjected(t)
	published := p.publish(100)
	gate := make(chan struct{}, 100)
	config := quick
	config.BatchSize = 10
	p.Project("totals", "order.>", config, func(ctx context.Context, tx pgx.Tx, events []posthorn.Event) error {
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
		return into("applied")(ctx, tx, events)
	})
	p.Start()
	let := func(batches int) {
		for range batches {
			gate <- struct{}{}
		}
	}
	let(10)
	p.wantApplied("applied", published)

	rebuilt := make(chan error, 1)
	go func() {
		rebuilt <- rebuild(t.Context(), p.Client, "totals", admin.RebuildConfig{Reset: emptied("truncate applied")})
	}()
	await.True(t, "a rebuild", func() bool { return p.status("totals").Rebuilding })
	if s := p.status("totals"); s.RebuildDone != 0 || s.RebuildTotal != 100 || s.LagEvents != 100 {
		t.Errorf("at the beginning: %+v", s)
	}
	let(4)
	p.awaitApplied("applied", 40)
	if s := p.status("totals"); !s.Rebuilding || s.RebuildDone != 40 || s.Position != published[39] {
		t.Errorf("after 40 of 100 events: %+v", s)
	}
	let(6)
	if err := <-rebuilt; err != nil {
		t.Fatal(err)
	}
	if s := p.status("totals"); s.Rebuilding || s.RebuiltAt.IsZero() || s.LagEvents != 0 {
		t.Errorf("in the end: %+v", s)
	}
	p.wantApplied("applied", published)
}

// A batch and a rebuild that take the tables in opposite orders block each
// other. The one that Postgres ends is retried, without an error.
func TestRebuildAgainstADeadlock(t *testing.T) {
	t.Parallel()
	for name, soon := range map[string]string{"the batch gives way": "10ms", "the rebuild gives way": "20s"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rebuildAgainstADeadlock(t, soon)
		})
	}
}

// rebuildAgainstADeadlock lets the batch look for a deadlock after that long.
func rebuildAgainstADeadlock(t *testing.T, soon string) {
	p := newProjected(t)
	p.Exec("create table first (event bigint); create table second (event bigint)")
	want := p.publish(1)

	inside, emptiedSecond := make(chan struct{}), make(chan struct{})
	var enter, leave sync.Once
	apply := func(ctx context.Context, tx pgx.Tx, events []posthorn.Event) error {
		if _, err := tx.Exec(ctx, "insert into first select unnest($1::bigint[])", ids(events)); err != nil {
			return err
		}
		enter.Do(func() {
			close(inside)
			<-emptiedSecond
			await.True(t, "a rebuild that waits for us", p.somebodyWaits)
		})
		if _, err := tx.Exec(ctx, "set local deadlock_timeout = '"+soon+"'"); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "insert into second select unnest($1::bigint[])", ids(events)); err != nil {
			return err
		}
		return into("applied")(ctx, tx, events)
	}
	reset := func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "truncate second"); err != nil {
			return err
		}
		leave.Do(func() { close(emptiedSecond) })
		// Long enough for the batch to wait in its turn: it looks only once.
		_, err := tx.Exec(ctx, "set local deadlock_timeout = '3s'; truncate first, applied")
		return err
	}

	var said testworld.Buffer
	ph, err := posthorn.Open(t.Context(), posthorn.Config{DatabaseURL: p.URL, Logger: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ph.Close)
	ph.Project("totals", "order.>", quick, apply)
	stop := testworld.Run(p.T, ph)
	<-inside
	if err := rebuild(t.Context(), ph, "totals", admin.RebuildConfig{Reset: reset}); err != nil {
		t.Fatal(err)
	}
	p.wantApplied("applied", want)
	stop()
	if strings.Contains(said.String(), "stands still") {
		t.Errorf("a deadlock passed for a failure of the projection:\n%s", said.String())
	}
	for _, table := range []string{"first", "second"} {
		var n int
		if err := p.Pool().QueryRow(t.Context(), "select count(*) from "+table).Scan(&n); err != nil || n != 1 {
			t.Errorf("%d rows in %s, want 1: %v", n, table, err)
		}
	}
}

// somebodyWaits tells whether a transaction waits for a lock on a table.
func (p *projected) somebodyWaits() bool {
	var waits bool
	if err := p.Pool().QueryRow(context.Background(), `select exists (select from pg_locks
		where not granted and locktype = 'relation' and database = (select oid from pg_database where datname = current_database()))`).Scan(&waits); err != nil {
		p.T.Error(err)
	}
	return waits
}

// A batch that has written and not yet settled when the rebuild begins does not
// hold it up, and is rolled back.
func TestRebuildDuringABatch(t *testing.T) {
	t.Parallel()
	p := newProjected(t)
	want := p.publish(5)
	inside, fenced := make(chan struct{}), make(chan struct{})
	var once sync.Once
	p.Project("totals", "order.>", quick, func(ctx context.Context, tx pgx.Tx, events []posthorn.Event) error {
		if err := into("applied")(ctx, tx, events); err != nil {
			return err
		}
		once.Do(func() { close(inside); <-fenced })
		return nil
	})
	p.Start()
	<-inside
	err := rebuild(t.Context(), p.Client, "totals", admin.RebuildConfig{Reset: func(ctx context.Context, tx pgx.Tx) error {
		select {
		case <-fenced:
		default:
			close(fenced)
		}
		_, err := tx.Exec(ctx, "truncate applied")
		return err
	}})
	if err != nil {
		t.Fatal(err)
	}
	p.wantApplied("applied", want)
}

func TestRebuildIsRolledBackWhenResetFails(t *testing.T) {
	t.Parallel()
	p := newProjected(t)
	keep(p.Client, "applied")
	p.Start()
	want := p.publish(5)
	p.wantApplied("applied", want)
	broken := errors.New("broken")
	err := rebuild(t.Context(), p.Client, "totals", admin.RebuildConfig{Reset: func(ctx context.Context, tx pgx.Tx) error {
		tx.Exec(ctx, "truncate applied")
		return broken
	}})
	if !errors.Is(err, broken) {
		t.Errorf("error %v, want %v", err, broken)
	}
	if s := p.status("totals"); s.Rebuilding || s.LagEvents != 0 {
		t.Errorf("status is %+v", s)
	}
	p.wantApplied("applied", append(want, p.publish(1)...))
}

func TestRebuildOfNothing(t *testing.T) {
	t.Parallel()
	p := newProjected(t)
	config := admin.RebuildConfig{Reset: emptied("truncate applied")}
	if err := rebuild(t.Context(), p.Client, "totals", config); !errors.Is(err, posthorn.ErrNotFound) {
		t.Errorf("no projection: %v, want ErrNotFound", err)
	}
	if err := rebuild(t.Context(), p.Client, "totals", admin.RebuildConfig{}); !errors.Is(err, posthorn.ErrInvalid) {
		t.Errorf("no Reset: %v, want ErrInvalid", err)
	}
	p.Exec("select posthorn.define_projection('default', 'totals')")
	if err := rebuild(t.Context(), p.Client, "totals", config); err != nil { // nobody runs it, and nobody has to
		t.Errorf("empty log: %v", err)
	}
}

// A batch that gives way to a transaction of somebody else's has not failed.
func TestProjectionGivesWay(t *testing.T) {
	t.Parallel()
	p := newProjected(t)
	p.Exec("create table first (event bigint); create table second (event bigint)")
	want := p.publish(1)
	other := p.Begin()
	if _, err := other.Exec(t.Context(), "lock table second"); err != nil {
		t.Fatal(err)
	}
	var said testworld.Buffer
	ph, err := posthorn.Open(t.Context(), posthorn.Config{DatabaseURL: p.URL, Logger: slog.New(slog.NewTextHandler(&said, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(ph.Close)
	inside := make(chan struct{})
	var enter sync.Once
	ph.Project("totals", "order.>", quick, func(ctx context.Context, tx pgx.Tx, events []posthorn.Event) error {
		if _, err := tx.Exec(ctx, "insert into first values (1)"); err != nil {
			return err
		}
		enter.Do(func() { close(inside); await.True(t, "the other to wait for us", p.somebodyWaits) })
		if _, err := tx.Exec(ctx, "set local deadlock_timeout = '10ms'"); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, "insert into second values (1)"); err != nil {
			return err
		}
		return into("applied")(ctx, tx, events)
	})
	stop := testworld.Run(p.T, ph)
	<-inside
	if _, err := other.Exec(t.Context(), "set local deadlock_timeout = '1min'; lock table first"); err != nil {
		t.Fatal(err)
	}
	if err := other.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.wantApplied("applied", want)
	stop()
	if strings.Contains(said.String(), "stands still") {
		t.Errorf("a deadlock passed for a failure:\n%s", said.String())
	}
}
