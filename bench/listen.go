package main

import (
	"context"
	"errors"
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
	const many, one = "many listeners", "one listener"
	s := &sitting{
		name: "listen",
		open: func(ctx context.Context, b *bench, system string) (measure, error) {
			d, err := b.newDatabase(ctx)
			if err != nil {
				return nil, err
			}
			listeners, events := 1, max(b.events/1000, 20)
			if system == many {
				listeners = min(manyListeners, b.events)
			}
			return func(ctx context.Context) ([]float64, error) {
				return percentiles(d.listenLatencies(ctx, listeners, events))
			}, nil
		},
	}
	for i, percent := range []string{"p50", "p99"} {
		all = append(all, s.row(row{
			work: "publish → listener, 10,000 in one process, " + percent, unit: " ms",
			ours: "100 events/s by a Go client, each for one listener by its key, 10 patterns beside", peer: one,
		}, i, many, one))
	}
	return all
}

func (d *database) listenLatencies(ctx context.Context, listeners, events int) (taken []float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, sideTimeout)
	defer cancel()
	ph, err := posthorn.Open(ctx, posthorn.Config{DatabaseURL: d.url(), Logger: quiet})
	if err != nil {
		return nil, err
	}
	defer ph.Close()
	publisher, err := posthorn.Open(ctx, posthorn.Config{DatabaseURL: d.url(), Logger: quiet})
	if err != nil {
		return nil, err
	}
	defer publisher.Close()
	set := &listenerSet{ph: ph, counter: newCounter(warmUp + events), at: map[int64]time.Time{}}
	end, err := set.open(ctx, listeners)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()

	tick := time.NewTicker(publishEvery)
	defer tick.Stop()
	starts := map[int64]time.Time{}
	for i := range warmUp + events {
		<-tick.C
		start := time.Now()
		key := strconv.Itoa(i * 7919 % listeners)
		ids, err := publisher.Publish(ctx, publisher.Pool(), posthorn.Message{Type: eventType, Key: key, Payload: []byte(payload)})
		if err != nil {
			return nil, err
		}
		if i >= warmUp {
			starts[ids[0]] = start
		}
	}
	if err := set.wait(ctx); err != nil {
		return nil, err
	}
	for id, start := range starts {
		taken = append(taken, float64(set.at[id].Sub(start).Microseconds())/1000)
	}
	return taken, nil
}

// listenerSet is the listeners of one process, with the times at which events reached
// them.
type listenerSet struct {
	ph *posthorn.Client
	*counter
	mu sync.Mutex
	at map[int64]time.Time
}

// open returns when all of them listen.
func (s *listenerSet) open(ctx context.Context, listeners int) (end func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	opened, failed := newCounter(listeners), make(chan error, 1)
	fail := func(err error) {
		if ctx.Err() == nil {
			select {
			case failed <- err:
			default:
			}
			cancel()
		}
	}
	open := func(filter posthorn.Filter, handle func(listening.Item), isOpen func()) {
		l, err := s.ph.Internal().Hub.Listen(ctx, listening.Start{Filter: listening.Filter(filter)})
		if err != nil {
			fail(err)
			return
		}
		defer l.Close()
		isOpen()
		for {
			event, err := l.Next(ctx)
			if err != nil {
				fail(err)
				return
			}
			handle(event)
			l.Done()
		}
	}
	if listeners > 1 {
		for i := range patternListeners {
			pattern := posthorn.Filter{Types: []string{fmt.Sprintf("*.%d.>", i%10)}}
			running.Go(func() { open(pattern, func(listening.Item) {}, func() {}) })
		}
	}
	for i := range listeners {
		running.Go(func() { open(posthorn.Filter{Keys: []string{strconv.Itoa(i)}}, s.note, opened.add) })
	}
	end = func() error {
		cancel()
		running.Wait()
		select {
		case err := <-failed:
			return err
		default:
			return nil
		}
	}
	if err := opened.wait(ctx); err != nil {
		return nil, errors.Join(err, end())
	}
	return end, nil
}

func (s *listenerSet) note(event listening.Item) {
	now := time.Now()
	s.mu.Lock()
	s.at[event.ID] = now
	s.mu.Unlock()
	s.add()
}
