package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/posthorn/posthorn"
)

// setting is how the worker processes of a job system work. The best values depend on
// the machine, so several are tried, and the rounds are measured with the fastest one.
type setting struct {
	Concurrency int `json:"concurrency"` // of each process
	Batch       int `json:"batch"`       // jobs taken by one statement
	Delay       int `json:"delay"`       // milliseconds before completions are written
}

// jobSystem is a job system in a database of its own.
type jobSystem struct {
	name string // as in workerConfig
	*database
	schemas  []string // of its tables
	jobs     string   // the table that is vacuumed after jobs were enqueued; empty for all
	left     string   // counts the jobs that are not complete
	finished string   // removes jobs that are complete
	enqueue  func(ctx context.Context, n int) error
	// one enqueues a job by the fastest way that the system has for a single job.
	one func(ctx context.Context, payload []byte) error
}

// systemNames are the names of the systems in rows.
var systemNames = map[string]string{
	"posthorn": "Posthorn", "graphile": "graphile-worker", "river": "River", "pgboss": "pg-boss",
}

// settingsOf returns the settings to try.
func settingsOf(system, task string) []setting {
	switch system {
	case "graphile":
		if task == "note" {
			// Without a local queue each of the waiting workers fetches one job by
			// itself; with one the process fetches for all of them.
			return []setting{{24, -1, -1}, {24, 500, 0}}
		}
		// 24 and 500 are those of graphile-worker's own measurements. Larger local
		// queues need fewer statements. Tasks that do nothing gain nothing by more
		// concurrency, tasks that wait do.
		if task == "none" {
			return []setting{{24, 500, 0}, {24, 2000, 0}, {100, 1000, 0}, {100, 4000, 0}}
		}
		return []setting{{24, 500, 0}, {100, 500, 0}, {500, 1000, 0}}
	case "river":
		if task == "note" {
			return []setting{{Concurrency: 100}}
		}
		// A client fetches as many jobs as it has free workers.
		return []setting{{Concurrency: 100}, {Concurrency: 500}, {Concurrency: 1000}, {Concurrency: 2000}, {Concurrency: 5000}}
	case "pgboss":
		// Two workers of 1,000 jobs keep both cores busy; more jobs in a statement
		// make it slower.
		return []setting{{2, 1000, 0}, {4, 1000, 0}}
	}
	if task == "note" {
		return []setting{{Concurrency: 10, Batch: 1000}}
	}
	// A worker takes up to BatchSize short jobs by one statement, whatever the
	// concurrency is. Handlers that do nothing gain nothing by more than the default
	// of 10; handlers that wait do.
	if task == "none" {
		return []setting{{Concurrency: 10, Batch: 1000}, {Concurrency: 10, Batch: 4000}, {Concurrency: 50, Batch: 1000}}
	}
	return []setting{{Concurrency: 10, Batch: 1000}, {Concurrency: 100, Batch: 1000}, {Concurrency: 500, Batch: 1000}}
}

// workerConnections bounds the connections of a worker process: 24 for handlers, and
// one that listens.
const workerConnections = 25

// newSystem makes a job system in a new database.
func (b *bench) newSystem(ctx context.Context, name, task string) (*jobSystem, error) {
	switch name {
	case "graphile":
		return b.newGraphile(ctx, task)
	case "river":
		return b.newRiver(ctx)
	case "pgboss":
		return b.newPGBoss(ctx)
	}
	return b.newPosthorn(ctx)
}

func (b *bench) newPosthorn(ctx context.Context) (*jobSystem, error) {
	d, err := b.newDatabase(ctx)
	if err != nil {
		return nil, err
	}
	ph, err := posthorn.Open(ctx, posthorn.Config{DatabaseURL: d.url(), Logger: quiet})
	if err != nil {
		return nil, err
	}
	d.atEnd(ph.Close)
	return &jobSystem{
		name: "posthorn", database: d, schemas: []string{"posthorn"},
		left: "(select from posthorn.ready_jobs union all select from posthorn.running_jobs) j",
		enqueue: func(ctx context.Context, n int) error {
			jobs := make([]posthorn.NewJob, n)
			for i := range jobs {
				jobs[i] = posthorn.NewJob{Title: "bench", Tags: []string{jobTag}, Payload: json.RawMessage(payload)}
			}
			_, err := ph.Enqueue(ctx, ph.Pool(), jobs...)
			return err
		},
		one: func(ctx context.Context, payload []byte) error {
			_, err := ph.Enqueue(ctx, ph.Pool(), posthorn.NewJob{Title: "bench", Tags: []string{jobTag}, Payload: json.RawMessage(payload)})
			return err
		},
	}, nil
}

func (b *bench) newRiver(ctx context.Context) (*jobSystem, error) {
	q, err := b.newQueue(ctx)
	if err != nil {
		return nil, err
	}
	// A client that inserts notifies workers at most once in FetchCooldown.
	inserter, err := river.NewClient(riverpgxv5.New(q.pool), &river.Config{Logger: quiet, FetchCooldown: river.FetchCooldownMin})
	if err != nil {
		return nil, err
	}
	return &jobSystem{
		name: "river", database: q.database, schemas: []string{"public"}, jobs: "river_job",
		left: "river_job where state <> 'completed'", finished: "truncate river_job",
		enqueue: func(ctx context.Context, n int) error {
			jobs := make([]river.InsertManyParams, n)
			for i := range jobs {
				jobs[i].Args = benchJob{json.RawMessage(payload)}
			}
			_, err := inserter.InsertManyFast(ctx, jobs)
			return err
		},
		one: func(ctx context.Context, payload []byte) error {
			_, err := inserter.Insert(ctx, benchJob{payload}, nil)
			return err
		},
	}, nil
}

// The SQL functions of graphile-worker are its API for other languages.
const (
	addJobsSQL = `
		select count(*) from graphile_worker.add_jobs(array(
			select row($1::text, $2::json, null, null, null, null, null, null)::graphile_worker.job_spec
			from generate_series(1, $3::int)))`
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
		name: "graphile", database: d, schemas: []string{"graphile_worker"}, jobs: "graphile_worker._private_jobs",
		left: "graphile_worker._private_jobs",
		enqueue: func(ctx context.Context, n int) error {
			_, err := pool.Exec(ctx, addJobsSQL, task, payload, n)
			return err
		},
		one: func(ctx context.Context, payload []byte) error {
			_, err := pool.Exec(ctx, addJobSQL, task, string(payload))
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
		name: "pgboss", database: d, schemas: []string{"pgboss"}, jobs: "pgboss.job",
		left: "pgboss.job where name = 'bench' and state < 'completed'", finished: "truncate pgboss.job",
	}, nil
}

// work is the worker processes of a job system, for one task.
type work struct {
	*jobSystem
	*fleet
	task string
	best setting
}

// newWork starts the worker processes and finds their best setting with n jobs for
// each try, which also warms both sides.
func (b *bench) newWork(ctx context.Context, name, task string, processes, n int) (*work, error) {
	w, err := b.openWork(ctx, name, task, processes)
	if err != nil {
		return nil, err
	}
	settings := settingsOf(name, task)
	if _, err := w.throughput(ctx, n, settings[0]); err != nil { // warms the server and the processes
		return nil, err
	}
	fastest := 0.0
	for _, setting := range settings {
		speed, err := w.throughput(ctx, n, setting)
		if err != nil {
			return nil, err
		}
		b.say("  %s, %d at once, %d in a batch: %s/s", systemNames[name], setting.Concurrency, setting.Batch, figure(speed))
		if speed > fastest {
			fastest, w.best = speed, setting
		}
	}
	return w, nil
}

// openWork starts the worker processes.
func (b *bench) openWork(ctx context.Context, name, task string, processes int) (*work, error) {
	s, err := b.newSystem(ctx, name, task)
	if err != nil {
		return nil, err
	}
	w := &work{jobSystem: s, task: task}
	if task == "insert" {
		if _, err := s.Exec(ctx, effectsSQL); err != nil {
			return nil, err
		}
	}
	w.fleet, err = newFleet(ctx, workerConfig{
		System: name, URL: s.url(), Task: task, Payload: json.RawMessage(payload), Connections: workerConnections,
	}, processes)
	if err != nil {
		return nil, err
	}
	s.atEnd(w.fleet.close)
	if s.enqueue == nil {
		s.enqueue = func(ctx context.Context, n int) error {
			return w.ask(ctx, fmt.Sprint("enqueue ", n), "enqueued")
		}
	}
	return w, nil
}

// throughput measures from the start of the worker processes until n jobs are
// complete in the database.
func (w *work) throughput(ctx context.Context, n int, s setting) (float64, error) {
	if err := w.clear(ctx); err != nil {
		return 0, err
	}
	if err := w.fillUp(ctx, n); err != nil {
		return 0, err
	}
	if err := w.analyze(ctx); err != nil {
		return 0, err
	}
	var took time.Duration
	start := time.Now()
	err := w.workOff(ctx, n, s, func() { took = time.Since(start) })
	return float64(n) / took.Seconds(), err
}

// clear removes the finished jobs of earlier rounds where a system keeps them in the
// table of the waiting ones.
func (w *work) clear(ctx context.Context) error {
	if w.finished != "" {
		if _, err := w.Exec(ctx, w.finished); err != nil {
			return err
		}
	}
	if w.task != "insert" {
		return nil
	}
	_, err := w.Exec(ctx, "truncate bare.effects")
	return err
}

func (w *work) fillUp(ctx context.Context, n int) error {
	for done := 0; done < n; done += batchSize {
		if err := w.enqueue(ctx, min(batchSize, n-done)); err != nil {
			return err
		}
	}
	return nil
}

func (w *work) analyze(ctx context.Context) error {
	_, err := w.Exec(ctx, "vacuum analyze "+w.jobs)
	return err
}

// workOff lets the worker processes work until n jobs are complete in the database. Then
// it calls done, stops the processes, and checks that each job was done once.
func (w *work) workOff(ctx context.Context, n int, s setting, done func()) error {
	ctx, cancel := context.WithTimeout(ctx, sideTimeout)
	defer cancel()
	if err := w.start(ctx, s); err != nil {
		return err
	}
	if err := w.wait(ctx, n); err != nil {
		return err
	}
	if err := w.complete(ctx); err != nil {
		return err
	}
	done()
	if err := w.stop(ctx); err != nil {
		return err
	}
	if w.done != n {
		return fmt.Errorf("%d handlers ran for %d jobs", w.done, n)
	}
	if w.task != "insert" {
		return nil
	}
	effects, err := w.count(ctx, "bare.effects")
	if err == nil && effects != n {
		err = fmt.Errorf("%d effects of %d jobs", effects, n)
	}
	return err
}

// complete waits until no job is left.
func (w *work) complete(ctx context.Context) error {
	for {
		left, err := w.count(ctx, w.left)
		if err != nil || left == 0 {
			return err
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			return fmt.Errorf("%d jobs are left: %w", left, ctx.Err())
		}
	}
}
