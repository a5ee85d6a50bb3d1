package posthorn_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/await"
)

type letter struct {
	User     int    `json:"user"`
	Template string `json:"template"`
}

var errNoSuchUser = errors.New("no such user")

func send(context.Context, letter) error { return nil }

func ExampleClient_Enqueue() {
	tx, err := ph.Pool().Begin(ctx)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback(ctx)
	// … change the data that the job works on …
	ids, err := ph.Enqueue(ctx, tx, posthorn.NewJob{
		Title:   "Send welcome mail",
		Tags:    []string{"mail"},
		Payload: letter{User: 7, Template: "welcome"},
	})
	if err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(ctx); err != nil {
		log.Fatal(err)
	}
	log.Println("job", ids[0])
}

func ExampleClient_Enqueue_options() {
	_, err := ph.Enqueue(ctx, ph.Pool(), posthorn.NewJob{
		Title:       "Rebuild the search index",
		Tags:        []string{"search"},
		Priority:    -1,                               // taken after all other jobs
		RunAt:       time.Now().Add(10 * time.Minute), // not earlier
		MaxRetries:  5,
		RetryDelays: []time.Duration{10 * time.Second, time.Minute, time.Hour},
		UniqueKey:   "search-index", // one pending job is enough
	})
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleClient_Enqueue_fairly() {
	_, err := ph.Enqueue(ctx, ph.Pool(), posthorn.NewJob{
		Title:   "Resize a picture",
		Tags:    []string{"pictures"},
		FairKey: "tenant-7",
		Weight:  2, // twice as many turns as a key with 1, the default
	})
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleClient_Enqueue_after() {
	parts, err := ph.Enqueue(ctx, ph.Pool(), posthorn.NewJob{Title: "Read part 1"}, posthorn.NewJob{Title: "Read part 2"})
	if err != nil {
		log.Fatal(err)
	}
	if _, err = ph.Enqueue(ctx, ph.Pool(), posthorn.NewJob{Title: "Make the report", After: parts}); err != nil {
		log.Fatal(err)
	}
}

func ExampleWorkOn() {
	posthorn.WorkOn(ph, []string{"mail", "sms"}, posthorn.WorkConfig{}, func(ctx context.Context, job posthorn.Job, l letter) error {
		switch err := send(ctx, l); {
		case errors.Is(err, errNoSuchUser):
			return posthorn.Permanent(err)
		case err != nil:
			return err // another attempt follows
		}
		return job.SetResult(map[string]string{"sent": l.Template})
	})
	if err := ph.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

func ExampleJob_Progress() {
	ph.Work([]string{"import"}, posthorn.WorkConfig{Concurrency: 2, Timeout: 6 * time.Hour}, func(ctx context.Context, job posthorn.Job) error {
		for page := 1; page <= 100; page++ {
			// … import the page …
			if err := job.Progress(ctx, page); err != nil {
				return err
			}
		}
		return nil
	})
}

func ExampleStep() {
	posthorn.WorkOn(ph, []string{"orders"}, posthorn.WorkConfig{}, func(ctx context.Context, job posthorn.Job, order Order) error {
		charge, err := posthorn.Step(ctx, job, "charge", func(ctx context.Context) (string, error) {
			return "charge of order " + order.ID, theBank.Charge(ctx, order.ID, order.Cents) // the bank knows the order: a repeated call changes nothing
		})
		if err != nil {
			return err
		}
		if _, err = posthorn.StepTx(ctx, job, "book", func(ctx context.Context, tx pgx.Tx) (int, error) {
			_, err := tx.Exec(ctx, "insert into bookings (order_id, cents) values ($1, $2)", order.ID, order.Cents)
			return order.Cents, err
		}); err != nil {
			return err
		}
		paid, err := job.Await(ctx, "paid", "payment.settled", order.ID, 7*24*time.Hour)
		if errors.Is(err, posthorn.ErrTimedOut) {
			return posthorn.Permanent(err) // or remind the customer
		} else if err != nil {
			return err
		}
		if err := job.Sleep(ctx, "time to withdraw", 24*time.Hour); err != nil {
			return err
		}
		return job.SetResult([]any{charge, paid.ID})
	})
}

func ExampleJob_Complete() {
	ph.Work([]string{"billing"}, posthorn.WorkConfig{}, func(ctx context.Context, job posthorn.Job) error {
		tx, err := ph.Pool().Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx)
		if _, err := tx.Exec(ctx, "insert into invoices (job) values ($1)", job.ID); err != nil {
			return err
		}
		if err := job.Complete(ctx, tx); err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
}

func ExampleClient_WorkTx() {
	ph.WorkTx([]string{"billing"}, posthorn.WorkConfig{}, func(ctx context.Context, tx pgx.Tx, job posthorn.Job) error {
		_, err := tx.Exec(ctx, "insert into invoices (job) values ($1)", job.ID)
		return err
	})
}

func ExampleClient_WorkBatchTx() {
	ph.WorkBatchTx([]string{"billing"}, posthorn.WorkConfig{}, func(ctx context.Context, tx pgx.Tx, jobs []posthorn.Job) error {
		ids := make([]int64, len(jobs))
		for i, job := range jobs {
			ids[i] = job.ID
		}
		_, err := tx.Exec(ctx, "insert into invoices (job) select unnest($1::bigint[])", ids)
		return err
	})
}

func ExampleClient_Admin_job() {
	http.HandleFunc("GET /reports/{id}", func(w http.ResponseWriter, r *http.Request) {
		var id int64 // from the path
		job, err := ph.Admin().Job(r.Context(), id)
		switch {
		case errors.Is(err, posthorn.ErrNotFound):
			http.NotFound(w, r)
		case err == nil && job.Status == admin.JobCompleted:
			_, _ = w.Write(job.Result)
		}
	})
}

func ExampleClient_Admin_jobLimit() {
	err := ph.Admin().SetJobLimit(ctx, "mail", admin.JobLimit{MaxRunning: 5, MaxStarted: 100, Period: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
}

// addTotals adds orders to the table totals, which has the total of each customer.
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

// addNewTotals adds orders to the table new.totals.
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

func ExampleClient_Admin_projections() {
	projections, err := ph.Admin().Projections(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range projections {
		log.Println(p.Projection, p.Position, p.LagEvents, p.Error)
	}
}

func ExampleClient_Admin_rebuild() {
	err := ph.Admin().RebuildProjection(ctx, "totals", admin.RebuildConfig{Truncate: []string{"totals"}})
	if err != nil {
		log.Fatal(err)
	}
	err = ph.Admin().AwaitRebuilt(ctx, "totals", func(p admin.ProjectionStatus) {
		log.Printf("%d of %d", p.RebuildDone, p.RebuildTotal)
	})
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleClient_ReplaceProjection() {
	run := func(sql string) func(ctx context.Context, tx pgx.Tx) error {
		return func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, sql)
			return err
		}
	}
	err := ph.ReplaceProjection(ctx, "totals", "order.placed", posthorn.ReplaceConfig{
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

// The functions of the examples and of docs/project.md work. seed 002.30
func TestProjectionOfTheGuide(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec("create table public.totals (customer text primary key, cents bigint not null)")
	for i := range 10 {
		if _, err := w.Publish(t.Context(), w.Pool(), posthorn.Message{
			Type: "order.placed", Key: fmt.Sprint("c", i%2), Payload: Order{ID: fmt.Sprint(i), Cents: 100},
		}); err != nil {
			t.Fatal(err)
		}
	}
	w.Project("totals", "order.placed", posthorn.ProjectionConfig{}, addTotals)
	w.Start()
	want := func(when string) {
		t.Helper()
		await.True(t, "five orders each "+when, func() bool {
			var n int
			if err := w.Pool().QueryRow(t.Context(), "select count(*) from totals where cents = 500").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n == 2
		})
	}
	want("at first")
	run := func(sql string) func(ctx context.Context, tx pgx.Tx) error {
		return func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, sql)
			return err
		}
	}
	if err := w.Admin().RebuildProjection(t.Context(), "totals", admin.RebuildConfig{Reset: run("truncate totals")}); err != nil {
		t.Fatal(err)
	}
	if err := w.Admin().AwaitRebuilt(t.Context(), "totals", nil); err != nil {
		t.Fatal(err)
	}
	want("when rebuilt")
	if err := w.ReplaceProjection(t.Context(), "totals", "order.placed", posthorn.ReplaceConfig{
		Prepare: run("create schema new; create table new.totals (like public.totals including all)"),
		Swap:    run("drop table public.totals; alter table new.totals set schema public; drop schema new"),
	}, addNewTotals); err != nil {
		t.Fatal(err)
	}
	want("when replaced")
}
