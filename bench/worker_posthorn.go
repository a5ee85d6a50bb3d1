package main

import (
	"context"
	"encoding/json"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
)

// posthornWorker works with the public API, as a program does: on jobs, or on the
// events of a group. Its client, and so its connections, serve one round after the other,
// as those of the peers do.
type posthornWorker struct {
	config workerConfig
	*reporter
	client  *posthorn.Client
	setting setting // of client
	cancel  context.CancelFunc
	ended   chan error
}

// open replaces the client by one with a setting.
func (w *posthornWorker) open(ctx context.Context, s setting) (err error) {
	if w.client != nil {
		w.client.Close()
	}
	config := posthorn.Config{DatabaseURL: w.config.URL, MaxConns: w.config.Connections, Logger: quiet}
	if plainJobs := w.config.System == jobsSystem && w.config.Task != "insert"; !plainJobs && w.config.System != laterSystem {
		config.MaxConns *= 2 // half of them are for the transactions of handlers
	}
	if w.client, err = posthorn.Open(ctx, config); err != nil {
		return err
	}
	w.setting = s
	if s.Idle {
		s = setting{}
	}
	leaseFor := time.Duration(s.Lease) * time.Millisecond
	working := posthorn.WorkConfig{Concurrency: s.Concurrency, BatchSize: s.Batch, LeaseFor: leaseFor}
	switch w.config.System {
	case jobsSystem:
		if w.config.Task == "insert" {
			w.client.WorkTx([]string{jobTag}, working, w.jobTx)
		} else {
			w.client.Work([]string{jobTag}, working, w.job)
		}
		return nil
	case laterSystem:
		w.client.Work([]string{jobTag}, working, w.jobAlone)
		return nil
	case batchesSystem:
		w.client.WorkBatchTx([]string{jobTag}, working, w.batchTx)
		return nil
	}
	group := posthorn.GroupConfig{Concurrency: s.Concurrency, BatchSize: s.Batch, LeaseFor: leaseFor}
	if w.config.System == keyedSystem {
		group.Order = posthorn.OrderKey
	}
	g := w.client.Group(jobTag, group)
	if w.config.Task == "insert" {
		g.HandleTx("bench", ">", w.eventTx)
	} else {
		g.Handle("bench", ">", func(_ context.Context, e posthorn.Event) error { return w.do(w.config.Task, e.Payload) })
	}
	return nil
}

func (w *posthornWorker) start(ctx context.Context, s setting) error {
	if w.client == nil || s != w.setting {
		if err := w.open(ctx, s); err != nil {
			return err
		}
	}
	running, cancel := context.WithCancel(ctx)
	w.cancel, w.ended = cancel, make(chan error, 1)
	go func() { w.ended <- w.client.Run(running) }()
	return nil
}

func (w *posthornWorker) job(_ context.Context, job posthorn.Job) error {
	return w.do(w.config.Task, job.Payload)
}

// jobTx writes the effect of a job in the transaction that completes it, and counts it before the commit.
func (w *posthornWorker) jobTx(ctx context.Context, tx pgx.Tx, job posthorn.Job) error {
	_, err := tx.Exec(ctx, effectSQL, job.ID, job.Payload)
	if err == nil {
		w.done.Add(1)
	}
	return err
}

// jobAlone writes the effect of a job in a transaction of its own: its end is recorded later, with those of others.
func (w *posthornWorker) jobAlone(ctx context.Context, job posthorn.Job) error {
	_, err := w.client.Pool().Exec(ctx, effectSQL, job.ID, job.Payload)
	if err == nil {
		w.done.Add(1)
	}
	return err
}

// batchTx writes the effects of a batch, and counts its jobs before the commit.
func (w *posthornWorker) batchTx(ctx context.Context, tx pgx.Tx, jobs []posthorn.Job) error {
	ids, payloads := make([]int64, len(jobs)), make([]json.RawMessage, len(jobs))
	for i, job := range jobs {
		ids[i], payloads[i] = job.ID, job.Payload
	}
	_, err := tx.Exec(ctx, "insert into bare.effects (event_id, payload) select * from unnest($1::bigint[], $2::json[])", ids, payloads)
	if err == nil {
		w.done.Add(int64(len(jobs)))
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

func (w *posthornWorker) stop(context.Context) error {
	w.cancel()
	return <-w.ended
}
