package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"time"
)

// work is the worker processes of a job system, for one task.
type work struct {
	*jobSystem
	*fleet
	task string
	best setting
}

// newWork starts the worker processes and finds their best setting with n jobs for
// each try.
func (b *bench) newWork(ctx context.Context, name, task string, processes, n int) *work {
	w := b.openWork(ctx, name, task, processes)
	if n < fewJobs {
		return w
	}
	w.throughput(ctx, n) // warms the server and the processes
	w.tune(func() float64 {
		speed := w.throughput(ctx, n)
		b.say("  %s, %d at once, %d in a batch: %s/s", labelOf(name), w.best.Concurrency, w.best.Batch, figure(speed))
		return speed
	})
	return w
}

// fewJobs are so few that chance would find the setting.
const fewJobs = 1000

// openWork starts the worker processes.
func (b *bench) openWork(ctx context.Context, name, task string, processes int) *work {
	s := b.newSystem(ctx, name, task)
	if task == "insert" {
		s.exec(ctx, effectsSQL)
	}
	f := &fleet{more: make(chan struct{}, 1), config: workerConfig{
		System: name, URL: s.url(), Task: task, Payload: json.RawMessage(payload), Connections: workerConnections,
	}}
	s.atEnd(f.close)
	for range processes {
		f.add(ctx)
	}
	return &work{s, f, task, settingsOf(name, task)[0]} // the first setting is a good one
}

// tune tries the settings, and keeps the one with the highest score.
func (w *work) tune(score func() float64) {
	best, most := w.best, math.Inf(-1)
	for _, w.best = range settingsOf(w.name, w.task) {
		if one := score(); one > most {
			best, most = w.best, one
		}
	}
	w.best = best
}

// throughput measures from the start of the worker processes until n jobs are
// complete in the database.
func (w *work) throughput(ctx context.Context, n int) float64 {
	w.prepare(ctx, n)
	return float64(n) / w.workOff(ctx, n).Seconds()
}

// prepare enqueues n jobs, and removes those of earlier rounds.
func (w *work) prepare(ctx context.Context, n int) {
	w.clear(ctx)
	w.fillUp(ctx, n)
	w.exec(ctx, "vacuum analyze "+w.jobs)
}

// clear removes the jobs of earlier rounds from the peers' tables, in which those would
// slow them down.
func (w *work) clear(ctx context.Context) {
	if w.finished != "" {
		w.exec(ctx, w.finished)
	}
	if w.task == "insert" {
		w.exec(ctx, "truncate bare.effects")
	}
}

// The callers that add jobs at once: in bulk as many as there are cores, singly enough to
// let commits share a flush.
const (
	bulkCallers   = 2
	singleCallers = 16
)

// fillUp enqueues n jobs in bulk.
func (w *work) fillUp(ctx context.Context, n int) {
	if w.enqueue == nil {
		w.ask(ctx, fmt.Sprint("enqueue ", n), "enqueued")
		return
	}
	eachOf(ctx, bulkCallers, (n+batchSize-1)/batchSize, func(ctx context.Context, i int) {
		w.enqueue(ctx, same(min(batchSize, n-i*batchSize)))
	})
}

// addSingly enqueues n jobs one by one.
func (w *work) addSingly(ctx context.Context, n int) {
	if w.one == nil {
		w.ask(ctx, fmt.Sprint("one ", n), "enqueued")
		return
	}
	eachOf(ctx, singleCallers, n, func(ctx context.Context, _ int) { w.one(ctx, payload) })
}

// workOff lets the worker processes work, and returns the time until n jobs are complete
// in the database. Then it stops them, and checks that each job was done once.
func (w *work) workOff(ctx context.Context, n int) time.Duration {
	ctx, cancel := context.WithTimeout(ctx, sideTimeout)
	defer cancel()
	start := time.Now()
	w.start(ctx, w.best)
	w.finish(ctx, n)
	took := time.Since(start)
	w.stop(ctx)
	expect("calls of handlers", w.done, n)
	if w.task == "insert" {
		w.checkEffects(ctx, n)
	}
	return took
}

// finish waits until n jobs are done, and none is left in the database.
func (w *work) finish(ctx context.Context, n int) {
	w.wait(ctx, n)
	w.complete(ctx)
}

// complete waits until no job is left.
func (w *work) complete(ctx context.Context) {
	for {
		left := w.count(ctx, w.left)
		if left == 0 {
			return
		}
		select {
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
			fail("%d jobs are left: %w%s", left, ctx.Err(), w.complaints())
		}
	}
}
