package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"
)

// load is a steady rate of jobs or events.
type load struct {
	rate  float64 // per second
	batch int     // added by one statement
	n     int
}

// warmUp is the number of jobs or events before the measured ones, which open
// connections and prepare statements.
const warmUp = 20

const publishEvery = 10 * time.Millisecond

// senders bound the statements that add jobs at once. If all of them wait, the next
// batches are late, and their jobs count from the time when they were due.
const senders = 8

// calm measures the latency without other load.
func calm() *sitting {
	return &sitting{
		name: "latency at 100/s",
		open: func(ctx context.Context, b *bench, system string) (measure, error) {
			l := load{rate: 100, batch: 1, n: max(b.events/1000, 100)}
			w, err := b.openQuick(ctx, system, load{rate: 100, batch: 1, n: warmUp})
			if err != nil {
				return nil, err
			}
			return func(ctx context.Context) ([]float64, error) { return w.latency(ctx, l) }, nil
		},
	}
}

// busy measures the latency at a rate for all systems of the sitting: a fixed one, or
// if it is 0 half of the capacity of the slowest system.
func busy(name string, rate float64, batch int) *sitting {
	slowest := math.Inf(1)
	return &sitting{
		name: name,
		open: func(ctx context.Context, b *bench, system string) (measure, error) {
			n := b.itemsOf(system, "note")
			w, err := b.openQuick(ctx, system, load{rate: 1000, batch: batch, n: max(n/100, warmUp)})
			if err != nil {
				return nil, err
			}
			if rate == 0 {
				capacity, err := w.capacity(ctx, n)
				if err != nil {
					return nil, err
				}
				b.say("  %s at most: %s/s", systemNames[system], figure(capacity))
				slowest = min(slowest, capacity)
			}
			return func(ctx context.Context) ([]float64, error) {
				l := load{rate: rate, batch: batch, n: n}
				if rate == 0 {
					l.rate = slowest / 2
					b.say("  %s at %s/s", systemNames[system], figure(l.rate))
				}
				return w.latency(ctx, l)
			}, nil
		},
	}
}

func latencyRows() (all []row) {
	names := []string{"p50", "p99", "most"}
	beside := func(s *sitting, at, label string) {
		for i, percent := range names[:2] {
			for _, peer := range []string{riverSystem, graphileSystem} {
				all = append(all, s.row(row{
					work:   fmt.Sprintf("job latency at %s, %s, beside %s", at, percent, systemNames[peer]),
					target: atMost(1), unit: " ms", chart: bars("latency", label+", "+percent),
					ours: "from the time at which a job is to be enqueued to the handler of Client.Work in another process", peer: "the same with " + systemNames[peer],
				}, i, jobsSystem, peer))
			}
		}
	}
	alone := func(s *sitting, work string, figures int, floors, targets []limit, label, system string) {
		for i, percent := range names[:figures] {
			all = append(all, s.row(row{
				work: work + ", " + percent, floor: floors[i], target: targets[i], unit: " ms", chart: bars("latency", label+", "+percent),
				ours: "from the time at which an event is to be published to Handle in another process",
			}, i, system))
		}
	}
	beside(calm(), "100/s", "100 a second")
	floors, targets := []limit{within(3), within(15)}, []limit{within(2), within(5)}
	alone(calm(), "event latency at 100/s", 2, floors, targets, "100 a second", eventsSystem)
	alone(calm(), "event latency at 100/s, published by plain SQL", 2, floors, targets, "100 a second", plainSystem)
	beside(busy("jobs at half load", 0, 20), "half load", "half load")
	none := make([]limit, 3)
	alone(busy("events at half load", 0, 200), "event latency at half load", 3, none, none, "half load", eventsSystem)
	alone(busy("events at 60,000/s", 60_000, 200), "event latency at 60,000/s, batches of 200", 3, none, []limit{{}, within(30), {}}, "60,000 a second", eventsSystem)
	return all
}

// openQuick opens a system whose handlers note the latency, with the setting that has
// the lowest one under some load.
func (b *bench) openQuick(ctx context.Context, system string, some load) (*work, error) {
	w, err := b.openWork(ctx, system, "note", 1)
	if err != nil {
		return nil, err
	}
	fastest := math.Inf(1)
	best := w.best
	for _, w.best = range settingsOf(system, "note") {
		figures, err := w.latency(ctx, some)
		if err != nil {
			return nil, err
		}
		if figures[0] < fastest {
			fastest, best = figures[0], w.best
		}
	}
	w.best = best
	return w, nil
}

// capacity returns how many jobs a second are enqueued and done, when both happen at
// once.
func (w *work) capacity(ctx context.Context, n int) (float64, error) {
	if err := w.clear(ctx); err != nil {
		return 0, err
	}
	if err := w.start(ctx, w.best); err != nil {
		return 0, err
	}
	start := time.Now()
	err := eachOf(ctx, bulkCallers, n/batchSize+1, func(ctx context.Context, _ int) error {
		return w.enqueue(ctx, notes(time.Time{}, batchSize))
	})
	if err != nil {
		return 0, err
	}
	if err := w.finish(ctx, n); err != nil {
		return 0, err
	}
	took := time.Since(start)
	return float64(n/batchSize+1) * batchSize / took.Seconds(), w.stop(ctx)
}

// notes returns payloads for the task note.
func notes(due time.Time, n int) []string {
	at := int64(0)
	if !due.IsZero() {
		at = due.UnixMicro()
	}
	return slices.Repeat([]string{fmt.Sprintf(`{"at": %d, "note": "%0160d"}`, at, 0)}, n)
}

// latency adds jobs at a steady rate, without waiting for earlier ones, and returns
// the 50th and 99th percentile and the greatest of the milliseconds until their handlers
// run.
func (w *work) latency(ctx context.Context, l load) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, sideTimeout)
	defer cancel()
	if err := w.clear(ctx); err != nil {
		return nil, err
	}
	if err := w.start(ctx, w.best); err != nil {
		return nil, err
	}
	sent, err := w.send(ctx, l)
	if err != nil {
		return nil, err
	}
	if err := w.finish(ctx, sent); err != nil {
		return nil, err
	}
	if err := w.stop(ctx); err != nil {
		return nil, err
	}
	return percentiles(w.took, nil)
}

// send adds the jobs of a load after those of a warm-up, and returns their number.
func (w *work) send(ctx context.Context, l load) (int, error) {
	warm := max(l.n/5, warmUp) / l.batch
	batches := warm + max(l.n/l.batch, 1)
	every := time.Duration(float64(l.batch) / l.rate * float64(time.Second))
	start := time.Now()
	var sent atomic.Int64
	err := eachOf(ctx, senders, batches, func(ctx context.Context, i int) error {
		due := start.Add(time.Duration(i) * every)
		select {
		case <-time.After(time.Until(due)):
		case <-ctx.Done():
			return ctx.Err()
		}
		if i < warm {
			due = time.Time{}
		}
		sent.Add(int64(l.batch))
		if l.batch == 1 {
			return w.one(ctx, notes(due, 1)[0])
		}
		return w.enqueue(ctx, notes(due, l.batch))
	})
	return int(sent.Load()), err
}

// percentiles returns the 50th and 99th percentile and the greatest of some values.
func percentiles(values []float64, err error) ([]float64, error) {
	if err == nil && len(values) == 0 {
		err = errors.New("nothing was timed")
	}
	if err != nil {
		return nil, err
	}
	return []float64{percentile(values, 50), percentile(values, 99), slices.Max(values)}, nil
}

// percentile returns the smallest value that is not exceeded by percent of the
// values.
func percentile(values []float64, percent int) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)*percent+99)/100-1]
}
