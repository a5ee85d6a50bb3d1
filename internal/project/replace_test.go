package project_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// replaceConfig builds applied_new and lets it take the place of applied. The
// swap fails unless the new table has all that the old one has.
func replaceConfig() posthorn.ReplaceConfig {
	return posthorn.ReplaceConfig{
		ProjectionConfig: quick,
		Prepare:          emptied(fmt.Sprintf(appliedTable, "applied_new")),
		Swap: func(ctx context.Context, tx pgx.Tx) error {
			var missing int
			if err := tx.QueryRow(ctx, `select count(*) from applied
				where event not in (select event from applied_new)`).Scan(&missing); err != nil {
				return err
			}
			if missing > 0 {
				return fmt.Errorf("swapped too early: %d events are missing", missing)
			}
			_, err := tx.Exec(ctx, `
				drop table if exists applied_old;
				alter table applied rename to applied_old;
				alter table applied_new rename to applied`)
			return err
		},
	}
}

// Seed 002.30: the old table can be read, and goes on, until the new one has
// caught up; no event is lost or doubled, with others publishing, transactions
// that commit late, and workers that die in the middle.
func TestReplaceUnderLoad(t *testing.T) {
	t.Parallel()
	p := newProjected(t)
	p.Project("totals", "order.>", quick, dying("applied", 3, 9, 20))
	p.Start()
	other := p.OpenWith(posthorn.Config{})
	keep(other, "applied")
	testworld.Run(p.T, other)
	late := p.Begin()
	want := p.publishIn(late, 3)
	load := p.load()
	for i := range 2 {
		p.awaitApplied("applied", 100*i+100)
		config := replaceConfig()
		config.BatchSize = 50
		var last, total int64
		config.Progress = func(done, of int64) {
			last, total = done, of
			if n := len(p.in("applied")); n < 100 {
				t.Errorf("only %d events can be read meanwhile", n)
			}
		}
		if err := p.ReplaceProjection(t.Context(), "totals", "order.>", config, dying("applied_new", 3, 9)); err != nil {
			t.Fatal(err)
		}
		if last != total || total == 0 {
			t.Errorf("progress ended at %d of %d", last, total)
		}
	}
	p.awaitApplied("applied", load.count()+20)
	want = append(want, load.end()...)
	if err := late.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	p.wantApplied("applied", want)
	if s := p.status("totals"); s.RebuiltAt.IsZero() || p.status("totals (replacement)").Projection != "" {
		t.Errorf("in the end: %+v and %+v", s, p.status("totals (replacement)"))
	}
}

// A replay that ends within its first lease reports all of its IDs too, and one
// of an empty log reports nothing.
func TestReplaceReportsAShortReplay(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 10} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			t.Parallel()
			p := newProjected(t)
			keep(p.Client, "applied")
			p.Start()
			var want [][2]int64
			await.True(t, "a projection", func() bool { return p.status("totals").Projection != "" })
			if n > 0 {
				p.wantApplied("applied", p.publish(n))
				want = [][2]int64{{int64(n), int64(n)}}
			}
			var got [][2]int64
			config := replaceConfig()
			config.Progress = func(done, total int64) { got = append(got, [2]int64{done, total}) }
			if err := p.ReplaceProjection(t.Context(), "totals", "order.>", config, into("applied_new")); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("reports of progress (-want +got):\n%s", diff)
			}
		})
	}
}

// Two processes that replace at once build one replacement, which takes the place
// once. (One that comes when the other has just finished builds its own.)
func TestReplaceTwiceAtOnce(t *testing.T) {
	t.Parallel()
	p := newProjected(t)
	keep(p.Client, "applied")
	p.Start()
	want := p.publish(200)
	p.wantApplied("applied", want)
	shared := false
	for range 50 {
		prepared, swapped := p.replaceTwice()
		if swapped != prepared {
			t.Fatalf("%d replacements were begun, and took their place %d times", prepared, swapped)
		}
		p.wantApplied("applied", want)
		if shared = prepared == 1; shared {
			break
		}
	}
	if !shared {
		t.Error("the two never met")
	}
	p.wantApplied("applied", append(want, p.publish(1)...))
}

// replaceTwice replaces in two processes at once, and returns how often tables were
// prepared and swapped: as marked in the same transactions.
func (p *projected) replaceTwice() (prepared, swapped int) {
	p.T.Helper()
	pool := p.Pool()
	if _, err := pool.Exec(p.T.Context(), "drop table if exists marks; create table marks (mark text)"); err != nil {
		p.T.Fatal(err)
	}
	marked := func(mark string, do func(context.Context, pgx.Tx) error) func(context.Context, pgx.Tx) error {
		return func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "insert into marks values ($1)", mark); err != nil {
				return err
			}
			return do(ctx, tx)
		}
	}
	replaced := make(chan error, 2)
	for range 2 {
		ph := p.OpenWith(posthorn.Config{})
		config := replaceConfig()
		config.BatchSize = 10
		config.Prepare, config.Swap = marked("prepared", config.Prepare), marked("swapped", config.Swap)
		go func() {
			replaced <- ph.ReplaceProjection(p.T.Context(), "totals", "order.>", config, into("applied_new"))
		}()
	}
	for range 2 {
		if err := <-replaced; err != nil {
			p.T.Error(err)
		}
	}
	err := pool.QueryRow(p.T.Context(), `
		select count(*) filter (where mark = 'prepared'), count(*) filter (where mark = 'swapped') from marks`).Scan(&prepared, &swapped)
	if err != nil {
		p.T.Fatal(err)
	}
	return prepared, swapped
}

// An event that cannot be applied ends the call, with the old table as it was.
// The next call goes on there, at once.
func TestReplaceGoesOnAfterAnError(t *testing.T) {
	t.Parallel()
	p := newProjected(t)
	keep(p.Client, "applied")
	p.Start()
	want := p.publish(100)
	p.wantApplied("applied", want)
	broken := errors.New("no such product")
	err := p.ReplaceProjection(t.Context(), "totals", "order.>", replaceConfig(), func(ctx context.Context, tx pgx.Tx, events []posthorn.Event) error {
		for _, id := range ids(events) {
			if id == want[30] {
				return broken
			}
		}
		return into("applied_new")(ctx, tx, events)
	})
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), fmt.Sprintf("event %d (order.placed)", want[30])) {
		t.Errorf("error is %v", err)
	}
	p.wantApplied("applied", append(want, p.publish(1)...))
	want = p.in("applied")
	if err := p.ReplaceProjection(t.Context(), "totals", "order.>", replaceConfig(), into("applied_new")); err != nil {
		t.Fatal(err)
	}
	p.wantApplied("applied", want)
}

// A swap that fails leaves everything as it was.
func TestReplaceWhenTheSwapFails(t *testing.T) {
	t.Parallel()
	p := newProjected(t)
	keep(p.Client, "applied")
	p.Start()
	want := p.publish(10)
	p.wantApplied("applied", want)
	broken := errors.New("broken")
	config := replaceConfig()
	config.Swap = func(ctx context.Context, tx pgx.Tx) error {
		tx.Exec(ctx, "drop table applied")
		return broken
	}
	if err := p.ReplaceProjection(t.Context(), "totals", "order.>", config, into("applied_new")); !errors.Is(err, broken) {
		t.Errorf("error is %v, want %v", err, broken)
	}
	want = append(want, p.publish(1)...)
	p.wantApplied("applied", want)
	if err := p.ReplaceProjection(t.Context(), "totals", "order.>", replaceConfig(), into("applied_new")); err != nil {
		t.Fatal(err)
	}
	p.wantApplied("applied", want)
}

func TestAbandonReplacement(t *testing.T) {
	t.Parallel()
	p := newProjected(t)
	keep(p.Client, "applied")
	p.Start()
	want := p.publish(10)
	p.wantApplied("applied", want)
	if err := p.Admin().AbandonReplacement(t.Context(), "totals"); !errors.Is(err, posthorn.ErrNotFound) {
		t.Errorf("nothing to abandon: %v, want ErrNotFound", err)
	}
	err := p.ReplaceProjection(t.Context(), "totals", "order.>", replaceConfig(), func(context.Context, pgx.Tx, []posthorn.Event) error {
		if err := p.Admin().AbandonReplacement(t.Context(), "totals"); err != nil {
			t.Error(err)
		}
		return nil
	})
	if !errors.Is(err, posthorn.ErrNotFound) {
		t.Errorf("Replace ended with %v, want ErrNotFound", err)
	}
	p.wantApplied("applied", append(want, p.publish(1)...))
	config := replaceConfig()
	config.Prepare = emptied("truncate applied_new") // it has stayed
	want = p.in("applied")
	if err := p.ReplaceProjection(t.Context(), "totals", "order.>", config, into("applied_new")); err != nil {
		t.Fatal(err)
	}
	p.wantApplied("applied", want)
}

func TestReplaceIsChecked(t *testing.T) {
	t.Parallel()
	p := newProjected(t)
	config := replaceConfig()
	if err := p.ReplaceProjection(t.Context(), "totals", "order.>", config, into("applied_new")); !errors.Is(err, posthorn.ErrNotFound) {
		t.Errorf("no projection: %v, want ErrNotFound", err)
	}
	config.Swap = nil
	if err := p.ReplaceProjection(t.Context(), "totals", "order.>", config, into("applied_new")); !errors.Is(err, posthorn.ErrInvalid) {
		t.Errorf("no swap: %v, want ErrInvalid", err)
	}
	if err := p.ReplaceProjection(t.Context(), "totals", "", replaceConfig(), into("applied_new")); !errors.Is(err, posthorn.ErrInvalid) {
		t.Errorf("no pattern: %v, want ErrInvalid", err)
	}
}
