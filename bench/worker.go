package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/posthorn/posthorn"
)

// jobTag is the tag of the jobs in the rows with worker processes.
const jobTag = "bench"

// runWorker is the program as a worker process of Posthorn or River. The commands and
// answers are those of node/peers.mjs.
func runWorker(encoded string, in io.Reader, out io.Writer) error {
	var c workerConfig
	if err := json.Unmarshal([]byte(encoded), &c); err != nil {
		return err
	}
	ctx := context.Background()
	r := &reporter{out: bufio.NewWriter(out)}
	var w jobWorker
	var err error
	switch c.System {
	case "posthorn":
		w, err = newPosthornWorker(ctx, c, r)
	case "river":
		w, err = newRiverWorker(ctx, c, r)
	default:
		err = fmt.Errorf("no job system %q", c.System)
	}
	if err != nil {
		return err
	}
	go r.run()
	r.say("ready")
	commands := bufio.NewScanner(in)
	for commands.Scan() {
		word, rest, _ := strings.Cut(commands.Text(), " ")
		switch word {
		case "start":
			var s setting
			if err := json.Unmarshal([]byte(rest), &s); err != nil {
				return err
			}
			if err := w.start(ctx, s); err != nil {
				return err
			}
			r.say("started")
		case "stop":
			if err := w.stop(ctx); err != nil {
				return err
			}
			r.report()
			r.say("stopped")
		}
	}
	return nil
}

// jobWorker works on jobs from start to stop, again and again.
type jobWorker interface {
	start(ctx context.Context, s setting) error
	stop(ctx context.Context) error
}

// reporter writes the lines of a worker process.
type reporter struct {
	done atomic.Int64 // since the last report
	mu   sync.Mutex
	out  *bufio.Writer
}

func (r *reporter) run() {
	for range time.Tick(5 * time.Millisecond) {
		r.report()
	}
}

func (r *reporter) report() {
	if n := r.done.Swap(0); n > 0 {
		r.say(fmt.Sprint("n ", n))
	}
}

func (r *reporter) say(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	fmt.Fprintln(r.out, line)
	r.out.Flush()
}

// note says that a numbered job has reached its handler.
func (r *reporter) note(payload []byte) error {
	var numbered struct{ N int }
	err := json.Unmarshal(payload, &numbered)
	if err == nil {
		r.say(fmt.Sprint("at ", numbered.N))
		r.done.Add(1)
	}
	return err
}

// posthornWorker works with the public API, as a program does.
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
	w.client, err = posthorn.Open(ctx, posthorn.Config{DatabaseURL: w.config.URL, MaxConns: w.config.Connections, Logger: quiet})
	return err
}

func (w *posthornWorker) start(ctx context.Context, s setting) error {
	w.client.Work([]string{jobTag}, posthorn.WorkConfig{Concurrency: s.Concurrency, BatchSize: s.Batch}, w.handler())
	running, cancel := context.WithCancel(ctx)
	w.cancel, w.ended = cancel, make(chan error, 1)
	go func() { w.ended <- w.client.Run(running) }()
	return nil
}

func (w *posthornWorker) handler() posthorn.JobHandler {
	switch w.config.Task {
	case "sleep":
		return func(context.Context, posthorn.Job) error {
			time.Sleep(time.Millisecond)
			w.done.Add(1)
			return nil
		}
	case "insert":
		return func(ctx context.Context, job posthorn.Job) error {
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
	case "note":
		return func(_ context.Context, job posthorn.Job) error { return w.note(job.Payload) }
	}
	return func(context.Context, posthorn.Job) error { w.done.Add(1); return nil }
}

func (w *posthornWorker) stop(ctx context.Context) error {
	w.cancel()
	err := <-w.ended
	w.client.Close()
	return errors.Join(err, w.open(ctx))
}

// riverWorker works with River's client.
type riverWorker struct {
	config workerConfig
	*reporter
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
}

// benchJob is a job of River with any JSON object as arguments.
type benchJob struct{ payload json.RawMessage }

func (benchJob) Kind() string { return "bench" }

func (j benchJob) MarshalJSON() ([]byte, error) { return j.payload, nil }

func (j *benchJob) UnmarshalJSON(payload []byte) error {
	j.payload = clone(payload)
	return nil
}

func newRiverWorker(ctx context.Context, c workerConfig, r *reporter) (*riverWorker, error) {
	config, err := pgxpool.ParseConfig(c.URL)
	if err != nil {
		return nil, err
	}
	config.MaxConns = int32(c.Connections)
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	return &riverWorker{config: c, reporter: r, pool: pool}, pool.Ping(ctx)
}

func (w *riverWorker) start(ctx context.Context, s setting) (err error) {
	bundle := river.NewWorkers()
	river.AddWorker(bundle, river.WorkFunc(w.handler()))
	w.client, err = river.NewClient(riverpgxv5.New(w.pool), riverConfig(bundle, s.Concurrency, ""))
	if err != nil {
		return err
	}
	return w.client.Start(ctx)
}

func (w *riverWorker) handler() func(context.Context, *river.Job[benchJob]) error {
	switch w.config.Task {
	case "sleep":
		return func(context.Context, *river.Job[benchJob]) error {
			time.Sleep(time.Millisecond)
			w.done.Add(1)
			return nil
		}
	case "insert":
		return func(ctx context.Context, job *river.Job[benchJob]) error {
			err := pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
				if _, err := tx.Exec(ctx, effectSQL, job.ID, []byte(job.Args.payload)); err != nil {
					return err
				}
				_, err := river.JobCompleteTx[*riverpgxv5.Driver](ctx, tx, job)
				return err
			})
			if err == nil {
				w.done.Add(1)
			}
			return err
		}
	case "note":
		return func(_ context.Context, job *river.Job[benchJob]) error { return w.note(job.Args.payload) }
	}
	return func(context.Context, *river.Job[benchJob]) error { w.done.Add(1); return nil }
}

func (w *riverWorker) stop(ctx context.Context) error { return w.client.Stop(ctx) }
