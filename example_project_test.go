package posthorn_test

import (
	"context"
	"log"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
)

// addTotals keeps the table totals: what each customer has ordered so far.
func addTotals(ctx context.Context, tx pgx.Tx, events []posthorn.Event) error {
	for _, e := range events {
		var order Order
		if err := e.Decode(&order); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `
			insert into totals (customer, cents) values ($1, $2)
			on conflict (customer) do update set cents = totals.cents + excluded.cents`,
			e.Key, order.Cents); err != nil {
			return err
		}
	}
	return nil
}

// addNewTotals does the same in the table new.totals.
func addNewTotals(ctx context.Context, tx pgx.Tx, events []posthorn.Event) error {
	if _, err := tx.Exec(ctx, "set local search_path = new, public"); err != nil {
		return err
	}
	return addTotals(ctx, tx, events)
}

func ExampleClient_Project() {
	ph.Project("totals", "order.placed", posthorn.ProjectionConfig{}, addTotals)
	if err := ph.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

func ExampleClient_Projections() {
	projections, err := ph.Projections(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range projections {
		log.Println(p.Projection, p.Position, p.LagEvents, p.Error)
	}
}

func ExampleClient_Rebuild() {
	err := ph.Rebuild(ctx, "totals", posthorn.RebuildConfig{
		Reset: func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "truncate totals")
			return err
		},
		Progress: func(done, total int64) { log.Printf("%d of %d", done, total) },
	})
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleClient_Replace() {
	run := func(sql string) func(ctx context.Context, tx pgx.Tx) error {
		return func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, sql)
			return err
		}
	}
	err := ph.Replace(ctx, "totals", "order.placed", posthorn.ReplaceConfig{
		Prepare: run("create schema new; create table new.totals (like public.totals including all)"),
		Swap:    run("drop table public.totals; alter table new.totals set schema public; drop schema new"),
	}, addNewTotals)
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleClient_Project_underANewName() {
	ph.Project("totals", "order.placed", posthorn.ProjectionConfig{}, addTotals)
	ph.Project("totals by day", "order.placed", posthorn.ProjectionConfig{}, addTotalsByDay)
	if err := ph.Run(ctx); err != nil {
		log.Print(err)
		os.Exit(1)
	}
}

func addTotalsByDay(ctx context.Context, tx pgx.Tx, events []posthorn.Event) error {
	for _, e := range events {
		if _, err := tx.Exec(ctx, `
			insert into orders_by_day (day, orders) values ($1::date, 1)
			on conflict (day) do update set orders = orders_by_day.orders + 1`, e.PublishedAt); err != nil {
			return err
		}
	}
	return nil
}
