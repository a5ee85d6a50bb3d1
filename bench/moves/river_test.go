package moves

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/posthorntest"
)

// send is the function that the page's handlers call. One test uses it.
var send = func(context.Context, string) error { return nil }

type mail struct {
	To string `json:"to"`
}

func (mail) Kind() string { return "mail" }

type digest struct {
	Customer string `json:"customer"`
}

func (digest) Kind() string { return "digest" }

func riverWorkers(pool *pgxpool.Pool) (*river.Client[pgx.Tx], error) {
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, job *river.Job[mail]) error {
		return send(ctx, job.Args.To)
	}))
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, job *river.Job[digest]) error {
		return send(ctx, "customer-"+job.Args.Customer)
	}))
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2}},
		Workers: workers,
	})
	return client, err
}

func riverInserts(ctx context.Context, client *river.Client[pgx.Tx], tx pgx.Tx, to, customer string, tomorrow time.Time) error {
	_, err := client.InsertManyTx(ctx, tx, []river.InsertManyParams{
		{Args: mail{To: to}, InsertOpts: &river.InsertOpts{ScheduledAt: tomorrow, MaxAttempts: 5}},
		{Args: digest{Customer: customer}, InsertOpts: &river.InsertOpts{UniqueOpts: river.UniqueOpts{ByArgs: true}}},
	})
	return err
}

func workersInsteadOfRivers(ph *posthorn.Client) {
	config := posthorn.WorkConfig{Concurrency: 2}
	posthorn.WorkOn(ph, []string{"mail"}, config, func(ctx context.Context, _ posthorn.Job, m mail) error {
		return send(ctx, m.To)
	})
	posthorn.WorkOn(ph, []string{"digest"}, config, func(ctx context.Context, _ posthorn.Job, d digest) error {
		return send(ctx, "customer-"+d.Customer)
	})
}

func enqueuesInsteadOfInserts(ctx context.Context, ph *posthorn.Client, tx pgx.Tx, to, customer string, tomorrow time.Time) error {
	_, err := ph.Enqueue(ctx, tx,
		posthorn.NewJob{Title: "mail", Tags: []string{"mail"}, Payload: mail{To: to}, RunAt: tomorrow, MaxRetries: 5},
		posthorn.NewJob{Title: "digest", Tags: []string{"digest"}, Payload: digest{Customer: customer}, UniqueKey: "digest:" + customer})
	return err
}

func TestFromRiver(t *testing.T) {
	t.Parallel()
	move := examples(t, "River", "sql", 1)[0]
	mails := newOutbox()
	send = mails.send
	d := newDatabase(t)
	pool, err := pgxpool.New(t.Context(), d.url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil); err != nil {
		t.Fatal(err)
	}
	client, err := riverWorkers(pool)
	if err != nil {
		t.Fatal(err)
	}
	background := context.WithoutCancel(t.Context())
	if err := client.Start(background); err != nil {
		t.Fatal(err)
	}
	stop := func() {
		if err := client.Stop(background); err != nil {
			t.Error(err)
		}
	}
	insert := func(to string, options *river.InsertOpts) {
		t.Helper()
		if _, err := client.Insert(t.Context(), mail{To: to}, options); err != nil {
			t.Fatal(err)
		}
	}
	commit := func(do func(tx pgx.Tx) error) {
		t.Helper()
		if err := pgx.BeginFunc(t.Context(), pool, do); err != nil {
			t.Fatal(err)
		}
	}
	tomorrow := time.Now().Add(24 * time.Hour)

	// River repeats the first failure after a second, and later ones by its schedule.
	insert("bad", &river.InsertOpts{MaxAttempts: 5})
	d.eventually("select count(*) = 1 from river_job where state = 'retryable'")
	insert("slow", nil)
	insert("slow", nil)
	mails.awaitBegun(t, "slow", 2) // both workers are busy, so the others wait
	insert("ada", nil)
	insert("bob", &river.InsertOpts{Priority: 4})
	for range 2 { // the second digest is not inserted
		commit(func(tx pgx.Tx) error { return riverInserts(t.Context(), client, tx, "eve", "7", tomorrow) })
	}
	d.eventually("select count(*) = 6 from river_job where state in ('available', 'scheduled', 'retryable')")

	commit(func(tx pgx.Tx) error {
		return enqueuesInsteadOfInserts(t.Context(), d.ph, tx, "mia", "7", tomorrow)
	})
	if moved := d.rows(move); moved != 6 {
		t.Errorf("%d jobs are moved, want 6", moved)
	}
	workersInsteadOfRivers(d.ph)
	posthorntest.Run(t, d.ph)
	close(mails.release)
	d.eventually("select count(*) = 2 from river_job where state = 'completed'")
	if moved := d.rows(move); moved != 0 {
		t.Errorf("%d jobs are moved again", moved)
	}
	stop()
	d.eventually("select count(*) = 2 from river_job")

	posthorntest.Drain(t, d.ph)
	mails.expect(t, "today", "ada bob customer-7 2×slow")
	for range 5 {
		posthorntest.Advance(t, d.ph, 25*time.Hour)
		posthorntest.Drain(t, d.ph)
	}
	mails.expect(t, "later", "ada bob customer-7 2×slow 2×eve mia")
	mails.expectFailed(t, "bad", 5)
	d.eventually("select count(*) = 1 from posthorn.jobs where status = 'FAILED' and payload->>'to' = 'bad'")
}
