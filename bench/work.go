package main

import (
	"context"
	"encoding/json"
	"fmt"
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
func (b *bench) newWork(ctx context.Context, name, task string, processes, n int) (*work, error) {
	w, err := b.openWork(ctx, name, task, processes)
	if err != nil {
		return nil, err
	}
	settings := settingsOf(name, task)
	if n < fewJobs {
		return w, nil
	}
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

// fewJobs are so few that chance would find the setting.
const fewJobs = 1000

// openWork starts the worker processes.
func (b *bench) openWork(ctx context.Context, name, task string, processes int) (*work, error) {
	s, err := b.newSystem(ctx, name, task)
	if err != nil {
		return nil, err
	}
	w := &work{jobSystem: s, task: task, best: settingsOf(name, task)[0]} // the first one is a good one
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
	return w, nil
}

// throughput measures from the start of the worker processes until n jobs are
// complete in the database.
func (w *work) throughput(ctx context.Context, n int, s setting) (float64, error) {
	if err := w.prepare(ctx, n); err != nil {
		return 0, err
	}
	return w.timed(ctx, n, s)
}

// timed is throughput after the n jobs were enqueued.
func (w *work) timed(ctx context.Context, n int, s setting) (float64, error) {
	var took time.Duration
	start := time.Now()
	err := w.workOff(ctx, n, s, func() { took = time.Since(start) })
	return float64(n) / took.Seconds(), err
}

// prepare enqueues n jobs, and removes those of earlier rounds.
func (w *work) prepare(ctx context.Context, n int) error {
	if err := w.clear(ctx); err != nil {
		return err
	}
	if err := w.fillUp(ctx, n); err != nil {
		return err
	}
	_, err := w.Exec(ctx, "vacuum analyze "+w.jobs)
	return err
}

// clear removes the jobs of earlier rounds from the peers' tables, in which those would
// slow them down.
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

// The callers that add jobs at once: in bulk as many as there are cores, singly enough to
// let commits share a flush.
const (
	bulkCallers   = 2
	singleCallers = 16
)

// fillUp enqueues n jobs in bulk.
func (w *work) fillUp(ctx context.Context, n int) error {
	if w.enqueue == nil {
		return w.ask(ctx, fmt.Sprint("enqueue ", n), "enqueued")
	}
	return eachOf(ctx, bulkCallers, (n+batchSize-1)/batchSize, func(ctx context.Context, i int) error {
		return w.enqueue(ctx, same(min(batchSize, n-i*batchSize)))
	})
}

// addSingly enqueues n jobs one by one.
func (w *work) addSingly(ctx context.Context, n int) error {
	if w.one == nil {
		return w.ask(ctx, fmt.Sprint("one ", n), "enqueued")
	}
	return eachOf(ctx, singleCallers, n, func(ctx context.Context, _ int) error { return w.one(ctx, payload) })
}

// workOff lets the worker processes work until n jobs are complete in the database. Then
// it calls done, stops the processes, and checks that each job was done once.
func (w *work) workOff(ctx context.Context, n int, s setting, done func()) error {
	ctx, cancel := context.WithTimeout(ctx, sideTimeout)
	defer cancel()
	if err := w.start(ctx, s); err != nil {
		return err
	}
	if err := w.finish(ctx, n); err != nil {
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
	return w.checkEffects(ctx, n)
}

// checkEffects checks that each of n jobs has had its effect once.
func (w *work) checkEffects(ctx context.Context, n int) error {
	effects, err := w.count(ctx, "bare.effects")
	if err == nil && effects != n {
		err = fmt.Errorf("%d effects of %d jobs", effects, n)
	}
	return err
}

// finish waits until n jobs are done, and none is left in the database.
func (w *work) finish(ctx context.Context, n int) error {
	if err := w.wait(ctx, n); err != nil {
		return err
	}
	return w.complete(ctx)
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
			return fmt.Errorf("%d jobs are left: %w%s", left, ctx.Err(), w.complaints())
		}
	}
}
