package main

import (
	"context"
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

// senders bound the statements that add jobs at once. If all of them wait, the next
// batches are late, and their jobs count from the time when they were due.
const senders = 8

// calm measures the latency without other load.
func calm() *sitting {
	return &sitting{
		name: "latency at 100/s",
		open: func(ctx context.Context, b *bench, system string) measure {
			w := b.openQuick(ctx, system, load{rate: 100, batch: 1, n: warmUp})
			return func(ctx context.Context) []float64 {
				return w.latency(ctx, load{rate: 100, batch: 1, n: max(b.events/1000, 100)})
			}
		},
	}
}

// busy measures the latency at a rate for all systems of the sitting: a fixed one, or
// if it is 0 half of the capacity of the slowest system.
func busy(name string, rate float64, batch int) *sitting {
	slowest := math.Inf(1)
	return &sitting{
		name: name,
		open: func(ctx context.Context, b *bench, system string) measure {
			n := b.itemsOf(system, "note")
			w := b.openQuick(ctx, system, load{rate: 1000, batch: batch, n: max(n/100, warmUp)})
			if rate == 0 {
				capacity := w.capacity(ctx, n)
				b.say("  %s at most: %s/s", labelOf(system), figure(capacity))
				slowest = min(slowest, capacity)
			}
			return func(ctx context.Context) []float64 {
				l := load{rate: rate, batch: batch, n: n}
				if rate == 0 {
					l.rate = slowest / 2
					b.say("  %s at %s/s", labelOf(system), figure(l.rate))
				}
				return w.latency(ctx, l)
			}
		},
	}
}

func latencyRows() (all []row) {
	names := []string{"p50", "p99", "most"}
	beside := func(s *sitting, at, label string) {
		for i, percent := range names[:2] {
			for _, peer := range []string{riverSystem, graphileSystem} {
				all = append(all, s.row(row{
					work:   fmt.Sprintf("job latency at %s, %s, beside %s", at, percent, labelOf(peer)),
					target: atMost(1), unit: " ms", chart: chartBar{"latency", label + ", " + percent},
					ours: "from the time at which a job is to be enqueued to the handler of Client.Work in another process", peer: "the same with " + labelOf(peer),
				}, i, jobsSystem, peer))
			}
		}
	}
	alone := func(s *sitting, work string, figures int, floors, targets []limit, label, system string) {
		for i, percent := range names[:figures] {
			all = append(all, s.row(row{
				work: work + ", " + percent, floor: floors[i], target: targets[i], unit: " ms", chart: chartBar{"latency", label + ", " + percent},
				ours: "from the time at which an event is to be published to Handle in another process",
			}, i, system))
		}
	}
	beside(calm(), "100/s", "100 a second")
	for i, percent := range names[:2] {
		all = append(all, calm().row(row{
			work: fmt.Sprintf("job latency at 100/s, %s, nine processes beside one", percent), target: atMost(1), unit: " ms",
			ours: "from the time at which a job is to be enqueued to its handler in one of nine processes", peer: "the same with one process",
		}, i, inCrowd(jobsSystem, 9), jobsSystem))
	}
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
func (b *bench) openQuick(ctx context.Context, name string, some load) *work {
	system, processes := fromCrowd(name)
	w := b.openWork(ctx, system, "note", processes)
	w.tune(func() float64 { return -w.latency(ctx, some)[0] })
	return w
}

// capacity returns how many jobs a second are enqueued and done, when both happen at
// once.
func (w *work) capacity(ctx context.Context, n int) float64 {
	w.clear(ctx)
	w.start(ctx, w.best)
	start := time.Now()
	batches := n/batchSize + 1
	eachOf(ctx, bulkCallers, batches, func(ctx context.Context, _ int) { w.enqueue(ctx, notes(time.Time{}, batchSize)) })
	w.finish(ctx, n)
	took := time.Since(start)
	w.stop(ctx)
	return float64(batches) * batchSize / took.Seconds()
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
func (w *work) latency(ctx context.Context, l load) []float64 {
	ctx, cancel := context.WithTimeout(ctx, sideTimeout)
	defer cancel()
	w.clear(ctx)
	w.start(ctx, w.best)
	w.finish(ctx, w.send(ctx, l))
	w.stop(ctx)
	return percentiles(w.took)
}

// send adds the jobs of a load after those of a warm-up, and returns their number.
func (w *work) send(ctx context.Context, l load) int {
	warm := max(l.n/5, warmUp) / l.batch
	every := time.Duration(float64(l.batch) / l.rate * float64(time.Second))
	start := time.Now()
	var sent atomic.Int64
	eachOf(ctx, senders, warm+max(l.n/l.batch, 1), func(ctx context.Context, i int) {
		due := start.Add(time.Duration(i) * every)
		sleep(ctx, time.Until(due))
		if i < warm {
			due = time.Time{}
		}
		sent.Add(int64(l.batch))
		if l.batch == 1 {
			w.one(ctx, notes(due, 1)[0])
		} else {
			w.enqueue(ctx, notes(due, l.batch))
		}
	})
	return int(sent.Load())
}

// percentiles returns the 50th and 99th percentile and the greatest of some values.
func percentiles(values []float64) []float64 {
	if len(values) == 0 {
		fail("nothing was timed")
	}
	return []float64{percentile(values, 50), percentile(values, 99), slices.Max(values)}
}

// percentile returns the smallest value that is not exceeded by percent of the
// values.
func percentile(values []float64, percent int) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)*percent+99)/100-1]
}

// milliseconds has digits for microseconds.
func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
