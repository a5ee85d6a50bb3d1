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
	stopRun func()
}

// open replaces the client by one with a setting.
func (w *posthornWorker) open(ctx context.Context, s setting) {
	if w.client != nil {
		w.client.Close()
	}
	config := posthorn.Config{DatabaseURL: w.config.URL, MaxConns: w.config.Connections, Logger: quiet}
	if plainJobs := w.config.System == jobsSystem && w.config.Task != "insert"; !plainJobs && w.config.System != laterSystem {
		config.MaxConns *= 2 // half of them are for the transactions of handlers
	}
	w.client = must(posthorn.Open(ctx, config))
	w.setting = s
	if s.Idle {
		s = setting{}
	}
	if systems[w.config.System].events {
		w.handle(s)
	} else {
		w.work(s)
	}
}

// work registers the handler of jobs.
func (w *posthornWorker) work(s setting) {
	tags := []string{jobTag}
	config := posthorn.WorkConfig{Concurrency: s.Concurrency, BatchSize: s.Batch, LeaseFor: s.lease()}
	switch {
	case w.config.System == batchesSystem:
		w.client.WorkBatchTx(tags, config, w.batchTx)
	case w.config.System == laterSystem: // ends of jobs are recorded later, with those of others
		w.client.Work(tags, config, func(ctx context.Context, job posthorn.Job) error {
			return w.effect(ctx, w.client.Pool(), job.ID, job.Payload)
		})
	case w.config.Task == "insert":
		w.client.WorkTx(tags, config, func(ctx context.Context, tx pgx.Tx, job posthorn.Job) error {
			return w.effect(ctx, tx, job.ID, job.Payload)
		})
	default:
		w.client.Work(tags, config, func(_ context.Context, job posthorn.Job) error { return w.do(w.config.Task, job.Payload) })
	}
}

// handle registers the handler of events.
func (w *posthornWorker) handle(s setting) {
	config := posthorn.GroupConfig{Concurrency: s.Concurrency, BatchSize: s.Batch, LeaseFor: s.lease()}
	if w.config.System == keyedSystem {
		config.Order = posthorn.OrderKey
	}
	g := w.client.Group(jobTag, config)
	if w.config.Task == "insert" {
		g.HandleTx("bench", ">", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
			return w.effect(ctx, tx, e.ID, e.Payload)
		})
	} else {
		g.Handle("bench", ">", func(_ context.Context, e posthorn.Event) error { return w.do(w.config.Task, e.Payload) })
	}
}

func (s setting) lease() time.Duration { return time.Duration(s.Lease) * time.Millisecond }

func (w *posthornWorker) start(ctx context.Context, s setting) {
	if w.client == nil || s != w.setting {
		w.open(ctx, s)
	}
	w.stopRun = inBackground(ctx, w.client)
}

func (w *posthornWorker) stop(context.Context) { w.stopRun() }

// effect writes the effect of a job or event, and counts it before the commit.
func (w *posthornWorker) effect(ctx context.Context, db posthorn.DB, id int64, payload []byte) error {
	_, err := db.Exec(ctx, effectSQL, id, payload)
	if err == nil {
		w.did(1)
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
		w.did(len(jobs))
	}
	return err
}
