package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/posthorn/posthorn"
)

// latencyRows have no other side: the limits apply to the time from before an event
// is published until its handler is called.
var latencyRows = []row{
	latencyRow("Go client", 50, within(3), within(1)),
	latencyRow("Go client", 99, within(15), limit{}),
	latencyRow("plain SQL", 50, within(3), within(1)),
	latencyRow("plain SQL", 99, within(15), limit{}),
}

const publishEvery = 10 * time.Millisecond

// warmUp is the number of events before the measured ones, which open connections and
// prepare statements.
const warmUp = 20

func latencyRow(by string, percent int, floor, target limit) row {
	return row{
		work:  fmt.Sprintf("publish → handler, idle system, published by %s, p%d", by, percent),
		floor: floor, target: target, unit: " ms",
		ours: "100 events/s, from before publishing to Handle in another client",
		prepare: func(ctx context.Context, b *bench) (ours, peer side, err error) {
			d, err := b.newDatabase(ctx)
			if err != nil {
				return nil, nil, err
			}
			publish := d.publishPlainly
			if by == "Go client" {
				publish = d.publishByClient
			}
			groups, err := d.newGroups(ctx, 1, "")
			if err != nil {
				return nil, nil, err
			}
			n := max(b.events/1000, 20)
			return func(ctx context.Context) (float64, error) {
				latencies, err := d.latencies(ctx, n, publish, groups[0].name)
				if err != nil {
					return 0, err
				}
				return percentile(latencies, percent), nil
			}, nil, nil
		},
	}
}

// publisher publishes an event at each call, and returns its id.
type publisher func(ctx context.Context) (int64, error)

// publishByClient publishes with a separate client, on a pool.
func (d *database) publishByClient(ctx context.Context) (publish publisher, end func(), err error) {
	ph, err := posthorn.Open(ctx, posthorn.Config{DatabaseURL: d.url(), Logger: quiet})
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context) (int64, error) {
		ids, err := ph.Publish(ctx, ph.Pool(), posthorn.Message{Type: eventType, Payload: []byte(payload)})
		if err != nil {
			return 0, err
		}
		return ids[0], nil
	}, ph.Close, nil
}

// publishPlainly publishes with plain SQL, so the handling client is not notified.
func (d *database) publishPlainly(ctx context.Context) (publish publisher, end func(), err error) {
	conn, err := d.connect(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context) (id int64, err error) {
		return id, conn.QueryRow(ctx, "select posthorn.publish('default', $1::text, $2::json)", eventType, payload).Scan(&id)
	}, func() { conn.Close(context.Background()) }, nil
}

// latencies publishes events at a steady pace, without waiting for earlier ones, and
// returns the delay in milliseconds of each of the last n.
func (d *database) latencies(
	ctx context.Context, n int, open func(context.Context) (publisher, func(), error), group string,
) (taken []float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, sideTimeout)
	defer cancel()
	publish, end, err := open(ctx)
	if err != nil {
		return nil, err
	}
	defer end()
	arrivals := &arrivals{at: map[int64]time.Time{}, counter: newCounter(warmUp + n)}
	stop, err := d.receive(ctx, group, arrivals)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()

	tick := time.NewTicker(publishEvery)
	defer tick.Stop()
	starts := map[int64]time.Time{}
	for i := range warmUp + n {
		<-tick.C
		start := time.Now()
		id, err := publish(ctx)
		if err != nil {
			return nil, err
		}
		if i >= warmUp {
			starts[id] = start
		}
	}
	if err := arrivals.wait(ctx); err != nil {
		return nil, err
	}
	for id, start := range starts {
		taken = append(taken, float64(arrivals.at[id].Sub(start).Microseconds())/1000)
	}
	return taken, nil
}

// arrivals holds the times at which handlers were called.
type arrivals struct {
	*counter
	mu sync.Mutex
	at map[int64]time.Time
}

func (a *arrivals) note(event int64) {
	now := time.Now()
	a.mu.Lock()
	a.at[event] = now
	a.mu.Unlock()
	a.add()
}

// receive runs a client that records when its handler is called.
func (d *database) receive(ctx context.Context, group string, arrivals *arrivals) (stop func() error, err error) {
	ph, err := posthorn.Open(ctx, posthorn.Config{DatabaseURL: d.url(), Logger: quiet})
	if err != nil {
		return nil, err
	}
	ph.Group(group, posthorn.GroupConfig{}).Handle("note", ">", func(_ context.Context, e posthorn.Event) error {
		arrivals.note(e.ID)
		return nil
	})
	running, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- ph.Run(running) }()
	return func() error {
		defer ph.Close()
		cancel()
		return <-ended
	}, nil
}

// percentile returns the smallest value that is not exceeded by percent of the
// values.
func percentile(values []float64, percent int) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)*percent+99)/100-1]
}
