package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// Config says what to torture, and for how long.
type Config struct {
	Seed uint64
	// For is how long events are published. Handling what is left takes a few
	// seconds more.
	For time.Duration
	// URL is a database with Posthorn in it and nothing else. The role must be
	// allowed to terminate backends.
	URL string
	// Crash ends Postgres without warning and starts it again under the same
	// URL, every CrashEvery. Nil for never.
	Crash      func(context.Context) error
	CrashEvery time.Duration
}

// run is the state that all clients share.
type run struct {
	Config
	record   *record
	groups   []*group
	clients  atomic.Int64 // numbers them, for their random numbers
	backends backends

	publishers atomic.Int64 // numbers them, for the names of their prepared transactions

	publishing context.Context // ends when no more is to be published
	draining   atomic.Bool     // workers behave, so that everything gets done
	left       []string        // what never got done

	mu     sync.Mutex
	err    error
	cancel context.CancelFunc
}

// Run publishes and handles events for a while, handles the rest, and checks
// everything. An error means that it could not; violations are in the report.
func Run(ctx context.Context, config Config) (Report, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	r := &run{Config: config, record: newRecord(), cancel: cancel}
	if err := r.prepare(ctx); err != nil {
		return Report{}, err
	}
	r.load(ctx)
	if r.err != nil {
		return Report{}, r.err
	}
	conn, err := pgx.Connect(ctx, r.URL)
	if err != nil {
		return Report{}, err
	}
	defer conn.Close(ctx)
	truth, err := r.read(ctx, conn)
	if err != nil {
		return Report{}, fmt.Errorf("read what became of the events: %w", err)
	}
	return r.check(truth), nil
}

// prepare makes the groups, and the table in which workers note what they did
// in the transaction that settles it.
func (r *run) prepare(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, r.URL)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, `
		create schema torture;
		create table torture.handled (
			n bigint generated always as identity,
			group_id int, event_id bigint, lease bigint, attempt int, outcome text
		);
		select posthorn.define_namespace('other');
		-- Whoever makes a stream holds up all who use it next.
		select posthorn.stream_id(n, 'stream-' || i) from unnest(array['default', 'other']) n, generate_series(0, 5) i;`)
	if err != nil {
		return fmt.Errorf("prepare the database: %w", err)
	}
	for _, g := range initialGroups() {
		if err := r.define(ctx, conn, g); err != nil {
			return err
		}
	}
	return nil
}

const (
	publishers      = 24
	workersPerGroup = 2
)

// load runs all clients until everything that was published is handled.
func (r *run) load(ctx context.Context) {
	publishing, stop := context.WithTimeout(ctx, r.For)
	defer stop()
	r.publishing = publishing
	var background, publish, work sync.WaitGroup
	disturbing, calm := context.WithCancel(ctx)
	defer calm()
	working, finish := context.WithCancel(ctx)
	defer finish()

	background.Go(func() { r.tend(working) })
	for _, disturb := range []func(context.Context){r.holdSnapshots, r.terminateBackends, r.crashServer} {
		publish.Go(func() { disturb(disturbing) })
	}
	publish.Go(func() { r.defineLateGroups(ctx, disturbing) })
	for range publishers {
		publish.Go(func() { r.newPublisher().run(ctx) })
	}
	startWorkers := func(g *group) {
		for i := range workersPerGroup {
			work.Go(func() { r.newWorker(g, i).run(working) })
		}
	}
	r.eachGroup(working, &background, startWorkers)

	<-publishing.Done()
	calm()
	publish.Wait()
	r.draining.Store(true)
	r.left = r.drain(ctx)
	finish()
	background.Wait()
	work.Wait()
}

// eachGroup starts the workers of every group, also of those defined later.
func (r *run) eachGroup(ctx context.Context, wg *sync.WaitGroup, start func(*group)) {
	started := 0
	more := func() {
		r.mu.Lock()
		fresh := r.groups[started:]
		started = len(r.groups)
		r.mu.Unlock()
		for _, g := range fresh {
			start(g)
		}
	}
	more()
	wg.Go(func() {
		for pause(ctx, 50*time.Millisecond) {
			more()
		}
	})
}

// fail ends the run: something happened that has no place in it.
func (r *run) fail(err error) {
	if err == nil || errors.Is(err, context.Canceled) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.err == nil {
		r.err = err
		r.cancel()
	}
}

func (r *run) random() *rand.Rand {
	return rand.New(rand.NewPCG(r.Seed, uint64(r.clients.Add(1))))
}

// pause waits, as clients do between two things; it is false when ctx has ended.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return ctx.Err() == nil
	}
}
