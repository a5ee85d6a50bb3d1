package posthorn_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/await"
)

// What the examples and docs/project.md do to their tables works: seed 002.30.
func TestProjectionOfTheGuide(t *testing.T) {
	t.Parallel()
	p := newProjected(t)
	p.exec("create table public.totals (customer text primary key, cents bigint not null)")
	for i := range 10 {
		if _, err := p.ph.Publish(t.Context(), p.ph.Pool(), posthorn.Message{
			Type: "order.placed", Key: fmt.Sprint("c", i%2), Payload: Order{ID: fmt.Sprint(i), Cents: 100},
		}); err != nil {
			t.Fatal(err)
		}
	}
	p.ph.Project("totals", "order.placed", quick, addTotals)
	p.run(p.ph)
	want := func(when string) {
		t.Helper()
		await.True(t, "five orders each "+when, func() bool {
			var n int
			if err := p.ph.Pool().QueryRow(t.Context(), "select count(*) from totals where cents = 500").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n == 2
		})
	}
	want("at first")
	run := func(sql string) func(ctx context.Context, tx pgx.Tx) error { return emptied(sql) }
	if err := p.ph.Rebuild(t.Context(), "totals", posthorn.RebuildConfig{Reset: run("truncate totals")}); err != nil {
		t.Fatal(err)
	}
	want("when rebuilt")
	if err := p.ph.Replace(t.Context(), "totals", "order.placed", posthorn.ReplaceConfig{
		Prepare: run("create schema new; create table new.totals (like public.totals including all)"),
		Swap:    run("drop table public.totals; alter table new.totals set schema public; drop schema new"),
	}, addNewTotals); err != nil {
		t.Fatal(err)
	}
	want("when replaced")
}
