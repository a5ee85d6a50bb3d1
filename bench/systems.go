package main

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

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
	enqueue func(ctx context.Context, payloads []string)
	one     func(ctx context.Context, payload string)
}

// The systems of rows, by the names of jobSystem.
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
	pgqSystem      = "pgq" // has no worker processes

	nodeJobsSystem   = "node" // by the client for Node
	nodeEventsSystem = "node events"
)

// systems has the facts about the systems that more than one file needs.
var systems = map[string]struct {
	label  string // for readers
	events bool   // its items are events, and not jobs
	inNode bool   // its worker processes run on Node.js
}{
	jobsSystem:       {label: "Posthorn"},
	laterSystem:      {label: "Posthorn, completed later"},
	batchesSystem:    {label: "Posthorn, WorkBatchTx"},
	eventsSystem:     {label: "Posthorn, events", events: true},
	keyedSystem:      {label: "Posthorn, events by key", events: true},
	plainSystem:      {label: "Posthorn, events by SQL", events: true},
	graphileSystem:   {label: "graphile-worker", inNode: true},
	riverSystem:      {label: "River"},
	pgbossSystem:     {label: "pg-boss", inNode: true},
	pgqSystem:        {label: "PgQ"},
	nodeJobsSystem:   {label: "Posthorn, Node", inNode: true},
	nodeEventsSystem: {label: "Posthorn, Node, events", events: true, inNode: true},
}

func labelOf(system string) string { return systems[system].label }

// isOurs reports whether a system is Posthorn in some way.
func isOurs(system string) bool { return strings.HasPrefix(labelOf(system), "Posthorn") }

// workerConnections bounds the connections of a worker process: 24 for handlers, and
// one that listens.
const workerConnections = 25

// newSystem makes a system in a new database.
func (b *bench) newSystem(ctx context.Context, name, task string) *jobSystem {
	switch {
	case name == graphileSystem:
		return b.newGraphile(ctx, task)
	case name == riverSystem:
		return b.newRiver(ctx)
	case name == pgbossSystem:
		return b.newPGBoss(ctx)
	case systems[name].events:
		return b.newEvents(ctx, name)
	}
	return b.newPosthorn(ctx, name, task)
}

// openClient opens a client that is closed before the database is dropped.
func (d *database) openClient(ctx context.Context) *posthorn.Client {
	ph := d.client(ctx, posthorn.Config{})
	d.atEnd(ph.Close)
	return ph
}

func (b *bench) newPosthorn(ctx context.Context, name, task string) *jobSystem {
	d := b.newDatabase(ctx)
	ph := d.openClient(ctx)
	var delays []time.Duration
	if task == "insert" {
		delays = []time.Duration{time.Second} // of attempts that fail when Postgres is killed
	}
	enqueue := func(ctx context.Context, payloads []string) {
		jobs := make([]posthorn.NewJob, len(payloads))
		for i, payload := range payloads {
			jobs[i] = posthorn.NewJob{Title: "bench", Tags: []string{jobTag}, Payload: json.RawMessage(payload), RetryDelays: delays}
		}
		must(ph.Enqueue(ctx, ph.Pool(), jobs...))
	}
	return &jobSystem{
		name: name, database: d, schemas: []string{"posthorn"},
		left:    "(select from posthorn.ready_jobs union all select from posthorn.running_jobs union all select from posthorn.waiting_jobs) j",
		enqueue: enqueue,
		one:     func(ctx context.Context, payload string) { enqueue(ctx, []string{payload}) },
	}
}

// eventKeys is the number of keys of the events of keyedSystem.
const eventKeys = 10_000

// newEvents makes a group whose members are the worker processes.
func (b *bench) newEvents(ctx context.Context, name string) *jobSystem {
	d := b.newDatabase(ctx)
	ph := d.openClient(ctx)
	config := "{}"
	if name == keyedSystem {
		config = `{"order": "key"}`
	}
	d.exec(ctx, "select posthorn.define_group('default', $1::text, $2::jsonb)", jobTag, config)
	var number atomic.Int64
	publish := func(ctx context.Context, payloads []string) {
		messages := make([]posthorn.Message, len(payloads))
		for i, payload := range payloads {
			messages[i] = posthorn.Message{Type: eventType, Payload: json.RawMessage(payload)}
			if name == keyedSystem {
				messages[i].Key = strconv.FormatInt(number.Add(1)%eventKeys, 10)
			}
		}
		must(ph.Publish(ctx, ph.Pool(), messages...))
	}
	s := &jobSystem{
		name: name, database: d, schemas: []string{"posthorn"}, jobs: "posthorn.events",
		left:    "posthorn.group_status where group_name = '" + jobTag + "' and lag_events + leases + retries > 0",
		enqueue: publish,
		one:     func(ctx context.Context, payload string) { publish(ctx, []string{payload}) },
	}
	if name == plainSystem {
		s.one = func(ctx context.Context, payload string) {
			must(ph.Pool().Exec(ctx, publishOneSQL, eventType, payload))
		}
	}
	return s
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

func (b *bench) newGraphile(ctx context.Context, task string) *jobSystem {
	d := b.newPlainDatabase(ctx)
	pool := d.openPool(ctx)
	return &jobSystem{
		name: graphileSystem, database: d, schemas: []string{"graphile_worker"}, jobs: "graphile_worker._private_jobs",
		left: "graphile_worker._private_jobs", finished: "truncate graphile_worker._private_jobs",
		enqueue: func(ctx context.Context, payloads []string) { must(pool.Exec(ctx, addJobsSQL, task, payloads)) },
		one:     func(ctx context.Context, payload string) { must(pool.Exec(ctx, addJobSQL, task, payload)) },
	}
}

// newPGBoss leaves out enqueue and one: pg-boss has no API outside of Node.js.
func (b *bench) newPGBoss(ctx context.Context) *jobSystem {
	return &jobSystem{
		name: pgbossSystem, database: b.newPlainDatabase(ctx), schemas: []string{"pgboss"}, jobs: "pgboss.job",
		left: "pgboss.job where name = 'bench' and state < 'completed'", finished: "truncate pgboss.job",
	}
}

// same returns n payloads.
func same(n int) []string { return slices.Repeat([]string{payload}, n) }
