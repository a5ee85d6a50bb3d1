package main

import (
	"context"
	"fmt"
	"time"
)

// recoveryRows measure how long a crash holds up the work. Posthorn's sides check that
// nothing is lost: each job and event has its effect exactly once.
func recoveryRows() (all []row) {
	worker := &sitting{name: "worker killed", open: func(ctx context.Context, b *bench, system string) (measure, error) {
		w, err := b.openWork(ctx, system, "insert", 2)
		if err != nil {
			return nil, err
		}
		w.best.Lease = int(b.lease.Milliseconds())
		return func(ctx context.Context) ([]float64, error) { return w.killWorker(ctx, b.itemsOf(system, "insert")) }, nil
	}}
	server := &sitting{name: "Postgres killed", open: func(ctx context.Context, b *bench, system string) (measure, error) {
		own, err := b.expendable(ctx)
		if err != nil {
			return nil, err
		}
		w, err := own.openWork(ctx, system, "insert", 1)
		if err != nil {
			return nil, err
		}
		w.best.Lease = int(b.lease.Milliseconds()) // jobs of claims whose answers were lost come back after it
		return func(ctx context.Context) ([]float64, error) { return w.killServer(ctx, b.itemsOf(system, "insert")) }, nil
	}}
	label := "one of two worker processes is killed: until every job is done"
	for _, system := range []string{jobsSystem, eventsSystem} {
		all = append(all, worker.row(row{
			work: fmt.Sprintf("kill -9 of one of two worker processes: until its %s are done", itemNames[system]), unit: " s",
			ours: "from the kill; the lease is that of -lease", chart: bars("recovery", label),
		}, 0, system))
	}
	label = "Postgres was killed and accepts connections again: until the next job is done"
	// graphile-worker is left out: its process ends when its local queue loses Postgres.
	return append(all, server.row(row{
		work: "kill -9 of Postgres: from its return until jobs flow, beside River", target: atMost(1), unit: " s",
		ours: "from the time at which Postgres, killed and started again, accepts connections", peer: "the same with River",
		chart: bars("recovery", label),
	}, 0, jobsSystem, riverSystem), server.row(row{
		work: "kill -9 of Postgres: from its return until events flow", unit: " s",
		ours: "from the time at which Postgres, killed and started again, accepts connections", chart: bars("recovery", label),
	}, 0, eventsSystem))
}

var itemNames = map[string]string{jobsSystem: "jobs", eventsSystem: "events"}

// expendable is a bench with a server of its own, which may be killed. The server is
// stopped at the end of the row.
func (b *bench) expendable(ctx context.Context) (*bench, error) {
	if b.own != nil {
		return b.own, nil
	}
	o := b.options
	o.databaseURL = ""
	s, err := openServer(ctx, o, b.progress)
	if err != nil {
		return nil, skip(err.Error())
	}
	b.own = &bench{options: o, server: s, progress: b.progress}
	return b.own, nil
}

// begin lets the worker processes do a quarter of n jobs.
func (w *work) begin(ctx context.Context, n int) error {
	if err := w.prepare(ctx, n); err != nil {
		return err
	}
	if err := w.start(ctx, w.best); err != nil {
		return err
	}
	return w.wait(ctx, n/4)
}

// killWorker returns the seconds until the jobs are done that a killed process held.
func (w *work) killWorker(ctx context.Context, n int) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, sideTimeout)
	defer cancel()
	if err := w.begin(ctx, n); err != nil {
		return nil, err
	}
	killed := time.Now()
	if err := w.fleet.kill(); err != nil {
		return nil, err
	}
	if err := w.complete(ctx); err != nil {
		return nil, err
	}
	took := time.Since(killed)
	if err := w.stop(ctx); err != nil {
		return nil, err
	}
	if err := w.checkEffects(ctx, n); err != nil {
		return nil, err
	}
	return []float64{took.Seconds()}, w.fleet.add(ctx)
}

// killServer kills Postgres and starts it again, and returns the seconds from then until
// another job is done.
func (w *work) killServer(ctx context.Context, n int) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, sideTimeout)
	defer cancel()
	if err := w.reconnect(ctx); err != nil { // after the kill of another system's round
		return nil, err
	}
	if err := w.begin(ctx, n); err != nil {
		return nil, err
	}
	if err := w.server.restart(ctx); err != nil {
		return nil, err
	}
	// Postgres' own recovery depends on the disk, and is the same for every system.
	back, before := time.Now(), w.progress()
	if err := w.insist(ctx, n/4); err != nil {
		return nil, err
	}
	if err := w.wait(ctx, before+1); err != nil {
		return nil, err
	}
	took := time.Since(back)
	if err := w.reconnect(ctx); err != nil {
		return nil, err
	}
	// A peer may wait for an hour before it repeats a job whose end it could not write.
	if w.name != jobsSystem && w.name != eventsSystem {
		return []float64{took.Seconds()}, w.stop(ctx)
	}
	if err := w.complete(ctx); err != nil {
		return nil, err
	}
	if err := w.stop(ctx); err != nil {
		return nil, err
	}
	return []float64{took.Seconds()}, w.checkEffects(ctx, n+n/4)
}

// insist adds n jobs when the connections to a killed server are replaced. A peer may
// have taken all earlier jobs.
func (w *work) insist(ctx context.Context, n int) error {
	for {
		err := w.enqueue(ctx, same(n))
		if err == nil {
			return nil
		}
		select {
		case <-time.After(time.Millisecond):
		case <-ctx.Done():
			return err
		}
	}
}

// reconnect replaces the connection of a database whose server was killed.
func (d *database) reconnect(ctx context.Context) error {
	if d.Ping(ctx) == nil {
		return nil
	}
	d.Conn.Close(ctx)
	conn, err := d.connect(ctx, nil)
	if err == nil {
		d.Conn = conn
	}
	return err
}
