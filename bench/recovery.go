package main

import (
	"context"
	"fmt"
	"time"
)

// recoveryRows measure how long a crash holds up the work. Posthorn's sides check that
// nothing is lost: each job and event has its effect exactly once.
func recoveryRows() (all []row) {
	worker := &sitting{name: "worker killed", open: func(ctx context.Context, b *bench, system string) measure {
		return b.killing(ctx, system, 2, (*work).killWorker)
	}}
	server := &sitting{name: "Postgres killed", open: func(ctx context.Context, b *bench, system string) measure {
		return b.expendable(ctx).killing(ctx, system, 1, (*work).killServer)
	}}
	label := "one of two worker processes is killed: until every job is done"
	for _, system := range []string{jobsSystem, eventsSystem} {
		all = append(all, worker.row(row{
			work: fmt.Sprintf("kill -9 of one of two worker processes: until its %s are done", itemNames[system]), unit: " s",
			ours: "from the kill; the lease is that of -lease", chart: chartBar{"recovery", label},
		}, 0, system))
	}
	label = "Postgres was killed and accepts connections again: until the next job is done"
	// graphile-worker is left out: its process ends when its local queue loses Postgres.
	return append(all, server.row(row{
		work: "kill -9 of Postgres: from its return until jobs flow, beside River", target: atMost(1), unit: " s",
		ours: "from the time at which Postgres, killed and started again, accepts connections", peer: "the same with River",
		chart: chartBar{"recovery", label},
	}, 0, jobsSystem, riverSystem), server.row(row{
		work: "kill -9 of Postgres: from its return until events flow", unit: " s",
		ours: "from the time at which Postgres, killed and started again, accepts connections", chart: chartBar{"recovery", label},
	}, 0, eventsSystem))
}

var itemNames = map[string]string{jobsSystem: "jobs", eventsSystem: "events"}

// killing measures the time after a kill while jobs with an INSERT are worked on. Jobs of
// a killed process, or of claims whose answers were lost, come back after the lease.
func (b *bench) killing(ctx context.Context, system string, processes int, kill func(w *work, ctx context.Context, n int) time.Duration) measure {
	w := b.openWork(ctx, system, "insert", processes)
	w.best.Lease = int(b.lease.Milliseconds())
	return func(ctx context.Context) []float64 {
		ctx, cancel := context.WithTimeout(ctx, sideTimeout)
		defer cancel()
		return []float64{kill(w, ctx, b.itemsOf(system, "insert")).Seconds()}
	}
}

// expendable is a bench with a server of its own, which may be killed. The server is
// stopped at the end of the row.
func (b *bench) expendable(ctx context.Context) *bench {
	if b.own == nil {
		b.own = &bench{options: b.options, server: b.startServer(ctx, serverSettings), progress: b.progress}
	}
	return b.own
}

// begin lets the worker processes do a quarter of n jobs.
func (w *work) begin(ctx context.Context, n int) {
	w.prepare(ctx, n)
	w.start(ctx, w.best)
	w.wait(ctx, n/4)
}

// killWorker returns the time until the jobs are done that a killed process held.
func (w *work) killWorker(ctx context.Context, n int) time.Duration {
	w.begin(ctx, n)
	killed := time.Now()
	w.fleet.kill()
	w.complete(ctx)
	took := time.Since(killed)
	w.stop(ctx)
	w.checkEffects(ctx, n)
	w.fleet.add(ctx)
	return took
}

// killServer kills Postgres and starts it again, and returns the time from then until
// another job is done.
func (w *work) killServer(ctx context.Context, n int) time.Duration {
	w.reconnect(ctx) // after the kill of another system's round
	w.begin(ctx, n)
	w.server.restart(ctx)
	// Postgres' own recovery depends on the disk, and is the same for every system.
	back, before := time.Now(), w.progress()
	w.insist(ctx, n/4)
	w.wait(ctx, before+1)
	took := time.Since(back)
	w.reconnect(ctx)
	if !isOurs(w.name) { // a peer may wait for an hour before it repeats a job whose end it could not write
		w.stop(ctx)
		return took
	}
	w.complete(ctx)
	w.stop(ctx)
	w.checkEffects(ctx, n+n/4)
	return took
}

// insist adds n jobs when the connections to a killed server are replaced. A peer may
// have taken all earlier jobs.
func (w *work) insist(ctx context.Context, n int) {
	for {
		err := caught(func() { w.enqueue(ctx, same(n)) })
		if err == nil {
			return
		}
		naming(err.Error(), func() { sleep(ctx, time.Millisecond) })
	}
}

// reconnect replaces the connection of a database whose server was killed.
func (d *database) reconnect(ctx context.Context) {
	if d.Ping(ctx) != nil {
		d.Conn.Close(ctx)
		d.Conn = d.connect(ctx, nil)
	}
}
