package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// jobLatency measures jobs at 100/s, without other load.
var jobLatency = &sitting{
	name: "job latency",
	open: func(ctx context.Context, b *bench, system string) (measure, error) {
		w, err := b.openWork(ctx, system, "note", 1)
		if err != nil {
			return nil, err
		}
		best := 0.0
		for _, s := range settingsOf(system, "note") {
			figures, err := w.latency(ctx, 2*warmUp, s)
			if err != nil {
				return nil, err
			}
			if best == 0 || figures[0] < best {
				best, w.best = figures[0], s
			}
		}
		n := max(b.events/1000, 20)
		return func(ctx context.Context) ([]float64, error) { return w.latency(ctx, n, w.best) }, nil
	},
}

func latencyRowsOf(s *sitting) (all []row) {
	for i, percent := range []int{50, 99} {
		for _, peer := range []string{"river", "graphile"} {
			all = append(all, s.row(row{
				work:   fmt.Sprintf("job enqueue → handler at 100/s, p%d, beside %s", percent, systemNames[peer]),
				target: atMost(1), unit: " ms",
				ours: "from before Enqueue to the handler of Client.Work in another process", peer: "the same with " + systemNames[peer],
			}, peer, i))
		}
	}
	return all
}

// latency enqueues single jobs at a steady pace, and returns the 50th and 99th
// percentile of the milliseconds from before a job is enqueued until its handler runs.
func (w *work) latency(ctx context.Context, n int, s setting) ([]float64, error) {
	ctx, cancel := context.WithTimeout(ctx, sideTimeout)
	defer cancel()
	var mu sync.Mutex
	starts, taken := make([]time.Time, warmUp+n), make([]float64, 0, n)
	w.arrive(func(number int, at time.Time) {
		mu.Lock()
		defer mu.Unlock()
		if number >= warmUp {
			taken = append(taken, float64(at.Sub(starts[number]).Microseconds())/1000)
		}
	})
	if err := w.start(ctx, s); err != nil {
		return nil, err
	}
	tick := time.NewTicker(publishEvery)
	defer tick.Stop()
	for i := range starts {
		<-tick.C
		mu.Lock()
		starts[i] = time.Now()
		mu.Unlock()
		if err := w.one(ctx, fmt.Appendf(nil, `{"n": %d}`, i)); err != nil {
			return nil, err
		}
	}
	if err := w.wait(ctx, len(starts)); err != nil {
		return nil, err
	}
	if err := w.complete(ctx); err != nil {
		return nil, err
	}
	if err := w.stop(ctx); err != nil {
		return nil, err
	}
	mu.Lock()
	defer mu.Unlock()
	return []float64{percentile(taken, 50), percentile(taken, 99)}, nil
}
