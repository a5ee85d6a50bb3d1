package main

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/posthorn/posthorn"
	listening "github.com/posthorn/posthorn/internal/listen"
)

// manyListeners have a key each; patternListeners share patterns that every event
// must be compared with.
const (
	manyListeners    = 10_000
	patternListeners = 100
)

// listenRows compare many listeners in one process with a single one.
func listenRows() (all []row) {
	const many, one = "many readers", "one reader"
	s := &sitting{
		name: "listen",
		open: func(ctx context.Context, b *bench, system string) measure {
			d := b.newDatabase(ctx)
			listeners, events := 1, max(b.events/1000, 20)
			if system == many {
				listeners = min(manyListeners, b.events)
			}
			return func(ctx context.Context) []float64 { return percentiles(d.listenLatencies(ctx, listeners, events)) }
		},
	}
	for i, percent := range []string{"p50", "p99"} {
		all = append(all, s.row(row{
			work: "publish → reader, 10,000 in one process, " + percent, unit: " ms",
			ours: "100 events/s by a Go client, each for one reader by its key, 10 patterns beside", peer: one,
		}, i, many, one))
	}
	return all
}

// listenLatencies returns the milliseconds until each event reaches its listener.
func (d *database) listenLatencies(ctx context.Context, listeners, events int) (taken []float64) {
	ctx, cancel := context.WithTimeout(ctx, sideTimeout)
	defer cancel()
	ph := d.client(ctx, posthorn.Config{})
	defer ph.Close()
	set := &listenerSet{ph: ph, counter: newCounter(warmUp + events), at: map[int64]time.Time{}}
	end := set.open(ctx, listeners)
	defer end()
	ids, begun := d.publishSteadily(ctx, warmUp+events, func(i int, _ time.Time) posthorn.Message {
		return posthorn.Message{Type: eventType, Key: strconv.Itoa(i * 7919 % listeners), Payload: []byte(payload)}
	})
	set.wait(ctx)
	for i := warmUp; i < len(ids); i++ {
		taken = append(taken, milliseconds(set.at[ids[i]].Sub(begun[i])))
	}
	return taken
}

const publishEvery = 10 * time.Millisecond

// publishSteadily publishes n events by a client of its own. It returns their ids, and the
// times at which the calls began, which message gets too.
func (d *database) publishSteadily(ctx context.Context, n int, message func(i int, now time.Time) posthorn.Message) (ids []int64, begun []time.Time) {
	ph := d.client(ctx, posthorn.Config{})
	defer ph.Close()
	tick := time.NewTicker(publishEvery)
	defer tick.Stop()
	for i := range n {
		<-tick.C
		now := time.Now()
		begun = append(begun, now)
		ids = append(ids, must(ph.Publish(ctx, ph.Pool(), message(i, now)))...)
	}
	return ids, begun
}

// listenerSet is the listeners of one process, with the times at which events reached
// them.
type listenerSet struct {
	ph *posthorn.Client
	*counter
	mu sync.Mutex
	at map[int64]time.Time
}

// open returns when all of them listen. They listen until end is called, which fails if
// one of them did.
func (s *listenerSet) open(ctx context.Context, listeners int) (end func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	end = func() {
		cancel(nil)
		running.Wait()
		if cause := context.Cause(ctx); cause != context.Canceled {
			check(cause)
		}
	}
	listen := func(filter posthorn.Filter, handle func(listening.Item), isOpen func()) {
		running.Go(func() {
			cancel(caught(func() {
				l := must(s.ph.Internal().Hub.Listen(ctx, listening.Start{Filter: listening.Filter(filter)}))
				defer l.Close()
				isOpen()
				for {
					handle(must(l.Next(ctx)))
					l.Done()
				}
			}))
		})
	}
	if listeners > 1 {
		for i := range patternListeners {
			listen(posthorn.Filter{Types: []string{fmt.Sprintf("*.%d.>", i%10)}}, func(listening.Item) {}, func() {})
		}
	}
	opened := newCounter(listeners)
	for i := range listeners {
		listen(posthorn.Filter{Keys: []string{strconv.Itoa(i)}}, s.note, opened.add)
	}
	if err := caught(func() { opened.wait(ctx) }); err != nil {
		end()
		check(err)
	}
	return end
}

func (s *listenerSet) note(event listening.Item) {
	now := time.Now()
	s.mu.Lock()
	s.at[event.ID] = now
	s.mu.Unlock()
	s.add()
}
