package main

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
)

// jobSystem is a system in a database of its own whose worker processes share work: a
// queue of jobs, or a group of Posthorn that handles events.
type jobSystem struct {
	name string // as in workerConfig
	*database
	schemas  []string // of its tables
	jobs     string   // the table that is vacuumed after jobs were enqueued; empty for all
	left     string   // counts the jobs that are not complete
	finished string   // removes the jobs of earlier rounds
	// enqueue adds jobs by the fastest way that the system has for many, and one by the
	// fastest way that it has for a single job. Both may be called by many at once. They
	// are nil for a system whose only API is in another language.
	enqueue func(ctx context.Context, payloads []string) error
	one     func(ctx context.Context, payload string) error
}

// The systems of rows, by the names of jobSystem. The last ones have no worker
// processes.
const (
	jobsSystem     = "posthorn"
	laterSystem    = "later"   // jobs that complete after their handlers, many at once
	batchesSystem  = "batches" // jobs, many in a transaction
	eventsSystem   = "events"
	keyedSystem    = "events by key" // events of 10,000 keys, in order
	plainSystem    = "events by SQL" // events that are published by plain SQL
	graphileSystem = "graphile"
	riverSystem    = "river"
	pgbossSystem   = "pgboss"
	pgqSystem      = "pgq"

	nodeJobsSystem   = "node" // by the client for Node
	nodeEventsSystem = "node events"
)

// systemNames are the names of the systems for readers.
var systemNames = map[string]string{
	jobsSystem: "Posthorn", laterSystem: "Posthorn, completed later", batchesSystem: "Posthorn, WorkBatchTx", eventsSystem: "Posthorn, events", keyedSystem: "Posthorn, events by key", plainSystem: "Posthorn, events by SQL",
	graphileSystem: "graphile-worker", riverSystem: "River", pgbossSystem: "pg-boss", pgqSystem: "PgQ",
	nodeJobsSystem: "Posthorn, Node", nodeEventsSystem: "Posthorn, Node, events",
}

// workerConnections bounds the connections of a worker process: 24 for handlers, and
// one that listens.
const workerConnections = 25

// newSystem makes a system in a new database.
func (b *bench) newSystem(ctx context.Context, name, task string) (*jobSystem, error) {
	switch name {
	case graphileSystem:
		return b.newGraphile(ctx, task)
	case riverSystem:
		return b.newRiver(ctx)
	case pgbossSystem:
		return b.newPGBoss(ctx)
	case eventsSystem, keyedSystem, plainSystem, nodeEventsSystem:
		return b.newEvents(ctx, name)
	}
	return b.newPosthorn(ctx, name, task)
}

// openClient opens a client that is closed before the database is dropped.
func (d *database) openClient(ctx context.Context) (*posthorn.Client, error) {
	ph, err := posthorn.Open(ctx, posthorn.Config{DatabaseURL: d.url(), Logger: quiet})
	if err == nil {
		d.atEnd(ph.Close)
	}
	return ph, err
}

func (b *bench) newPosthorn(ctx context.Context, name, task string) (*jobSystem, error) {
	d, err := b.newDatabase(ctx)
	if err != nil {
		return nil, err
	}
	ph, err := d.openClient(ctx)
	if err != nil {
		return nil, err
	}
	var delays []time.Duration
	if task == "insert" {
		delays = []time.Duration{time.Second} // of attempts that fail when Postgres is killed
	}
	enqueue := func(ctx context.Context, payloads []string) error {
		jobs := make([]posthorn.NewJob, len(payloads))
		for i, payload := range payloads {
			jobs[i] = posthorn.NewJob{Title: "bench", Tags: []string{jobTag}, Payload: json.RawMessage(payload), RetryDelays: delays}
		}
		_, err := ph.Enqueue(ctx, ph.Pool(), jobs...)
		return err
	}
	return &jobSystem{
		name: name, database: d, schemas: []string{"posthorn"},
		left:    "(select from posthorn.ready_jobs union all select from posthorn.running_jobs union all select from posthorn.waiting_jobs) j",
		enqueue: enqueue,
		one:     func(ctx context.Context, payload string) error { return enqueue(ctx, []string{payload}) },
	}, nil
}

// eventKeys is the number of keys of the events of keyedSystem.
const eventKeys = 10_000

// newEvents makes a group whose members are the worker processes.
func (b *bench) newEvents(ctx context.Context, name string) (*jobSystem, error) {
	d, err := b.newDatabase(ctx)
	if err != nil {
		return nil, err
	}
	ph, err := d.openClient(ctx)
	if err != nil {
		return nil, err
	}
	config := "{}"
	if name == keyedSystem {
		config = `{"order": "key"}`
	}
	if _, err := d.Exec(ctx, "select posthorn.define_group('default', $1::text, $2::jsonb)", jobTag, config); err != nil {
		return nil, err
	}
	var number atomic.Int64
	publish := func(ctx context.Context, payloads []string) error {
		messages := make([]posthorn.Message, len(payloads))
		for i, payload := range payloads {
			messages[i] = posthorn.Message{Type: eventType, Payload: json.RawMessage(payload)}
			if name == keyedSystem {
				messages[i].Key = strconv.FormatInt(number.Add(1)%eventKeys, 10)
			}
		}
		_, err := ph.Publish(ctx, ph.Pool(), messages...)
		return err
	}
	s := &jobSystem{
		name: name, database: d, schemas: []string{"posthorn"}, jobs: "posthorn.events",
		left:    "posthorn.group_status where group_name = '" + jobTag + "' and lag_events + leases + retries > 0",
		enqueue: publish,
		one:     func(ctx context.Context, payload string) error { return publish(ctx, []string{payload}) },
	}
	if name == plainSystem {
		s.one = func(ctx context.Context, payload string) error {
			_, err := ph.Pool().Exec(ctx, "select posthorn.publish('default', $1::text, $2::json)", eventType, payload)
			return err
		}
	}
	return s, nil
}

// The SQL functions of graphile-worker are its API for other languages. They spare it
// the cost of Node.js.
const (
	addJobsSQL = `
		select count(*) from graphile_worker.add_jobs(array(
			select row($1::text, payload::json, null, null, null, null, null, null)::graphile_worker.job_spec
			from unnest($2::text[]) payload))`
	addJobSQL = "select id from graphile_worker.add_job($1::text, $2::json)"
)

func (b *bench) newGraphile(ctx context.Context, task string) (*jobSystem, error) {
	d, err := b.newPlainDatabase(ctx)
	if err != nil {
		return nil, err
	}
	pool, err := d.openPool(ctx)
	if err != nil {
		return nil, err
	}
	return &jobSystem{
		name: graphileSystem, database: d, schemas: []string{"graphile_worker"}, jobs: "graphile_worker._private_jobs",
		left: "graphile_worker._private_jobs", finished: "truncate graphile_worker._private_jobs",
		enqueue: func(ctx context.Context, payloads []string) error {
			_, err := pool.Exec(ctx, addJobsSQL, task, payloads)
			return err
		},
		one: func(ctx context.Context, payload string) error {
			_, err := pool.Exec(ctx, addJobSQL, task, payload)
			return err
		},
	}, nil
}

// newPGBoss leaves out enqueue and one: pg-boss has no API outside of Node.js.
func (b *bench) newPGBoss(ctx context.Context) (*jobSystem, error) {
	d, err := b.newPlainDatabase(ctx)
	if err != nil {
		return nil, err
	}
	return &jobSystem{
		name: pgbossSystem, database: d, schemas: []string{"pgboss"}, jobs: "pgboss.job",
		left: "pgboss.job where name = 'bench' and state < 'completed'", finished: "truncate pgboss.job",
	}, nil
}

// tables returns the names of the tables of some schemas.
func (d *database) tables(ctx context.Context, schemas ...string) ([]string, error) {
	rows, err := d.Query(ctx, `
		select format('%I.%I', n.nspname, c.relname)
		from pg_class c
		join pg_namespace n on n.oid = c.relnamespace
		where c.relkind = 'r' and n.nspname = any ($1)`, schemas)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// same returns n payloads.
func same(n int) []string { return slices.Repeat([]string{payload}, n) }
