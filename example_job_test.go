package posthorn_test

import (
	"context"
	"errors"
	"log"
	"net/http"
	"time"

	"github.com/posthorn/posthorn"
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
	// … what the job is about …
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
		Priority:    -1,                               // after all others
		RunAt:       time.Now().Add(10 * time.Minute), // not before
		MaxRetries:  5,
		RetryDelays: []time.Duration{10 * time.Second, time.Minute, time.Hour},
		UniqueKey:   "search-index", // one of them is enough
	})
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleWorkOn() {
	posthorn.WorkOn(ph, []string{"mail", "sms"}, posthorn.WorkConfig{}, func(ctx context.Context, job posthorn.Job, l letter) error {
		switch err := send(ctx, l); {
		case errors.Is(err, errNoSuchUser):
			return posthorn.Permanent(err)
		case err != nil:
			return err // tried again
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
			// … import a page, with ctx …
			if err := job.Progress(ctx, page); err != nil {
				return err
			}
		}
		return nil
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

func ExampleClient_Job() {
	http.HandleFunc("GET /reports/{id}", func(w http.ResponseWriter, r *http.Request) {
		var id int64 // from the path
		job, err := ph.Job(r.Context(), id)
		switch {
		case errors.Is(err, posthorn.ErrNotFound):
			http.NotFound(w, r)
		case err == nil && job.Status == posthorn.JobCompleted:
			_, _ = w.Write(job.Result)
		}
	})
}

func ExampleClient_SetJobLimit() {
	five, hundred := 5, 100
	err := ph.SetJobLimit(ctx, "mail", posthorn.JobLimit{MaxRunning: &five, MaxStarted: &hundred, Period: time.Minute})
	if err != nil {
		log.Fatal(err)
	}
}
