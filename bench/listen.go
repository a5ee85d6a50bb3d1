package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/posthorn/posthorn"
)

// listenRows put many listeners of one process beside one that is alone.
var listenRows = []row{listenRow(50), listenRow(99)}

// manyListeners are those with a key of their own; patternListeners share some
// patterns that every event has to be tried on.
const (
	manyListeners    = 10_000
	patternListeners = 100
)

func listenRow(percent int) row {
	return row{
		work: fmt.Sprintf("publish → listener, 10,000 in one process, p%d", percent),
		unit: " ms",
		ours: "100 events/s by a Go client, each for one listener by its key, 10 patterns beside",
		than: "one listener",
		prepare: func(ctx context.Context, b *bench) (ours, than side, err error) {
			d, err := b.newDatabase(ctx)
			if err != nil {
				return nil, nil, err
			}
			events := max(b.events/1000, 20)
			listeners := min(manyListeners, b.events)
			return d.heardBy(listeners, events, percent), d.heardBy(1, events, percent), nil
		},
	}
}

// heardBy is how many milliseconds an event is under way to the listener that it
// is for.
func (d *database) heardBy(listeners, events, percent int) side {
	return func(ctx context.Context) (float64, error) {
		taken, err := d.listenLatencies(ctx, listeners, events)
		if err != nil {
			return 0, err
		}
		return percentile(taken, percent), nil
	}
}

func (d *database) listenLatencies(ctx context.Context, listeners, events int) (taken []float64, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
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
	ears := &ears{ph: ph, counter: newCounter(warmUp + events), at: map[int64]time.Time{}}
	end, err := ears.open(ctx, listeners)
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
	if err := ears.wait(ctx); err != nil {
		return nil, err
	}
	for id, start := range starts {
		taken = append(taken, float64(ears.at[id].Sub(start).Microseconds())/1000)
	}
	return taken, nil
}

// ears are the listeners of one process, and when they heard what.
type ears struct {
	ph *posthorn.Client
	*counter
	mu sync.Mutex
	at map[int64]time.Time
}

// open returns when all of them listen.
func (e *ears) open(ctx context.Context, listeners int) (end func() error, err error) {
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
	listen := func(filter posthorn.Filter, heard func(posthorn.Heard), isOpen func()) {
		l, err := e.ph.Listen(ctx, posthorn.ListenConfig{Filter: filter})
		if err != nil {
			fail(err)
			return
		}
		defer l.Close()
		isOpen()
		for event, err := range l.Events(ctx) {
			if err != nil {
				fail(err)
				return
			}
			heard(event)
		}
	}
	if listeners > 1 {
		for i := range patternListeners {
			pattern := posthorn.Filter{Types: []string{fmt.Sprintf("*.%d.>", i%10)}}
			running.Go(func() { listen(pattern, func(posthorn.Heard) {}, func() {}) })
		}
	}
	for i := range listeners {
		running.Go(func() { listen(posthorn.Filter{Keys: []string{strconv.Itoa(i)}}, e.note, opened.add) })
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

func (e *ears) note(event posthorn.Heard) {
	now := time.Now()
	e.mu.Lock()
	e.at[event.ID] = now
	e.mu.Unlock()
	e.add()
}
