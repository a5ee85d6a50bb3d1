package main

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// sustainedRate is the rate of jobs, and of events, that all systems of the row can
// hold.
const sustainedRate = 1000

// sample is the state of a system while it works.
type sample struct {
	Seconds float64 `json:"seconds"`
	Done    float64 `json:"done"` // per second, since the sample before
	Bytes   float64 `json:"bytes"`
	Dead    float64 `json:"dead"`
}

// samplesOfRun is the number of samples, whatever the length of the run is.
const samplesOfRun = 60

// sustainedRows measure a fixed rate for a long time.
func sustainedRows() (all []row) {
	s := &sitting{
		name: "sustained", once: true,
		open: func(ctx context.Context, b *bench, system string) measure {
			w := b.openQuick(ctx, system, load{rate: 100, batch: 1, n: warmUp})
			return func(ctx context.Context) (figures []float64) {
				l := load{rate: sustainedRate, batch: 10, n: max(int(b.sustain.Seconds()*sustainedRate), 100)}
				figures, b.samples[system] = w.sustain(ctx, l)
				return figures
			}
		},
	}
	figures := []struct{ name, unit, how string }{
		{"p99", " ms", "latency from the time at which a job is to be enqueued to its handler"},
		{"dead rows at most", "", "dead rows of all tables"},
		{"disk at the end", " MB", "all tables and indexes; Posthorn and River keep finished jobs, graphile-worker deletes them"},
	}
	for i, f := range figures {
		at := figure(sustainedRate) + "/s for a while"
		for _, peer := range []string{riverSystem, graphileSystem} {
			target := atMost(1)
			if i == 2 && peer == graphileSystem {
				target = limit{}
			}
			all = append(all, s.row(row{
				work: fmt.Sprintf("jobs at %s, %s, beside %s", at, f.name, labelOf(peer)), target: target, unit: f.unit,
				ours: f.how, peer: "the same with " + labelOf(peer),
			}, i, jobsSystem, peer))
		}
		all = append(all, s.row(row{work: fmt.Sprintf("events at %s, %s", at, f.name), unit: f.unit, ours: f.how}, i, eventsSystem))
	}
	return all
}

// sustain works at a rate and takes samples. Its figures are the 99th percentile of
// the latency, the most dead rows, and the megabytes on disk at the end.
func (w *work) sustain(ctx context.Context, l load) ([]float64, []sample) {
	watcher := &database{Conn: w.connect(ctx, nil)}
	defer watcher.Close(context.WithoutCancel(ctx))
	var watching sync.WaitGroup
	defer watching.Wait()
	watched, end := context.WithCancel(ctx)
	defer end()
	var samples []sample
	var failed error
	every := time.Duration(float64(l.n) / l.rate / samplesOfRun * float64(time.Second))
	watching.Go(func() { failed = caught(func() { samples = w.watch(watched, watcher, every) }) })
	latency := w.latency(ctx, l)
	end()
	watching.Wait()
	check(failed)
	bytes, most := w.occupied(ctx, w.schemas)
	for _, s := range samples {
		most = max(most, s.Dead)
	}
	return []float64{latency[1], most, bytes / 1e6}, samples
}

// watch takes samples until the context ends, on another connection to the database.
func (w *work) watch(ctx context.Context, d *database, every time.Duration) (samples []sample) {
	start, before, done := time.Now(), time.Now(), 0
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return samples
		case <-tick.C:
		}
		var bytes, dead float64
		err := caught(func() { bytes, dead = d.occupied(ctx, w.schemas) })
		if ctx.Err() != nil {
			return samples
		}
		check(err)
		now, all := time.Now(), w.progress()
		samples = append(samples, sample{
			Seconds: now.Sub(start).Seconds(), Done: float64(all-done) / now.Sub(before).Seconds(), Bytes: bytes, Dead: dead,
		})
		before, done = now, all
	}
}
