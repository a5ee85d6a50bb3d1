package main

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
)

// posthornWorker works with the public API, as a program does: on jobs, or on the
// events of a group.
type posthornWorker struct {
	config workerConfig
	*reporter
	client *posthorn.Client
	cancel context.CancelFunc
	ended  chan error
}

func newPosthornWorker(ctx context.Context, c workerConfig, r *reporter) (*posthornWorker, error) {
	w := &posthornWorker{config: c, reporter: r}
	return w, w.open(ctx)
}

// open makes the client of the next start.
func (w *posthornWorker) open(ctx context.Context) (err error) {
	config := posthorn.Config{DatabaseURL: w.config.URL, MaxConns: w.config.Connections, Logger: quiet}
	if w.config.System != jobsSystem {
		config.MaxConns *= 2 // half of them are for the transactions of handlers
	}
	w.client, err = posthorn.Open(ctx, config)
	return err
}

func (w *posthornWorker) start(ctx context.Context, s setting) error {
	leaseFor := time.Duration(s.Lease) * time.Millisecond
	if w.config.System == jobsSystem {
		w.client.Work([]string{jobTag}, posthorn.WorkConfig{Concurrency: s.Concurrency, BatchSize: s.Batch, LeaseFor: leaseFor}, w.job)
	} else {
		g := w.client.Group(jobTag, posthorn.GroupConfig{Concurrency: s.Concurrency, BatchSize: s.Batch, LeaseFor: leaseFor})
		if w.config.Task == "insert" {
			g.HandleTx("bench", ">", w.eventTx)
		} else {
			g.Handle("bench", ">", func(_ context.Context, e posthorn.Event) error { return w.do(w.config.Task, e.Payload) })
		}
	}
	running, cancel := context.WithCancel(ctx)
	w.cancel, w.ended = cancel, make(chan error, 1)
	go func() { w.ended <- w.client.Run(running) }()
	return nil
}

func (w *posthornWorker) job(ctx context.Context, job posthorn.Job) error {
	if w.config.Task != "insert" {
		return w.do(w.config.Task, job.Payload)
	}
	err := pgx.BeginFunc(ctx, w.client.Pool(), func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, effectSQL, job.ID, job.Payload); err != nil {
			return err
		}
		return job.Complete(ctx, tx)
	})
	if err == nil {
		w.done.Add(1)
	}
	return err
}

// eventTx counts an event before the commit of its transaction.
func (w *posthornWorker) eventTx(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
	_, err := tx.Exec(ctx, effectSQL, e.ID, e.Payload)
	if err == nil {
		w.done.Add(1)
	}
	return err
}

func (w *posthornWorker) stop(ctx context.Context) error {
	w.cancel()
	err := <-w.ended
	w.client.Close()
	return errors.Join(err, w.open(ctx))
}
