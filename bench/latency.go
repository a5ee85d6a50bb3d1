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

// latencyRows stand beside nothing: what is held against the limits is how long
// it takes from before an event is published until its handler runs.
var latencyRows = []row{
	latencyRow("Go client", 50, within(3), within(1)),
	latencyRow("Go client", 99, within(15), limit{}),
	latencyRow("plain SQL", 50, within(3), within(1)),
	latencyRow("plain SQL", 99, within(15), limit{}),
}

const publishEvery = 10 * time.Millisecond

// warmUp is how many events go before those that count: connections are made,
// statements prepared.
const warmUp = 20

func latencyRow(by string, percent int, floor, target limit) row {
	return row{
		work:  fmt.Sprintf("publish → handler, idle system, published by %s, p%d", by, percent),
		floor: floor, target: target, unit: " ms",
		ours: "100 events/s, from before publishing to Handle in another client",
		prepare: func(ctx context.Context, b *bench) (ours, than side, err error) {
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

// publishByClient is a client of its own that publishes on a pool.
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

// publishPlainly tells nobody: the client that handles has to find out.
func (d *database) publishPlainly(ctx context.Context) (publish publisher, end func(), err error) {
	conn, err := d.connect(ctx, nil)
	if err != nil {
		return nil, nil, err
	}
	return func(ctx context.Context) (id int64, err error) {
		return id, conn.QueryRow(ctx, "select posthorn.publish('default', $1::text, $2::json)", eventType, payload).Scan(&id)
	}, func() { conn.Close(context.Background()) }, nil
}

// latencies publishes events at a steady pace, whether or not those before have
// arrived, and returns how many milliseconds each of the last n was under way.
func (d *database) latencies(
	ctx context.Context, n int, open func(context.Context) (publisher, func(), error), group string,
) (taken []float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
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

// arrivals are when handlers were called.
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

// receive runs a client that notes when its handler is called.
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

// percentile is the smallest value that so many percent do not exceed.
func percentile(values []float64, percent int) float64 {
	sorted := slices.Sorted(slices.Values(values))
	return sorted[(len(sorted)*percent+99)/100-1]
}
