package worker_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/worker"
)

type thing struct{ worker.Hold }

var errNetwork = errors.New("the connection broke")

// A hold that was finished by a statement with an unknown result is not lost when the
// repeated statement is refused, unless another process may have it by then.
func TestALostAnswer(t *testing.T) {
	for _, expired := range []bool{false, true} {
		leaseFor := time.Hour
		if expired {
			leaseFor = -time.Hour
		}
		var h worker.Hold
		h.Init(t.Context(), time.Now(), leaseFor)
		first := h.Settle(func() (bool, error) { return true, errNetwork })
		second := h.Settle(func() (bool, error) { return true, pg.ErrLeaseLost })
		if !errors.Is(first, errNetwork) || errors.Is(second, pg.ErrLeaseLost) != expired || h.Lost() != expired || !h.Over() {
			t.Errorf("expired %v: got %v, then %v; lost %v, over %v", expired, first, second, h.Lost(), h.Over())
		}
	}
}

// The same holds after a statement about many.
func TestALostAnswerAboutMany(t *testing.T) {
	for _, answered := range []bool{false, true} {
		h := &thing{}
		h.Init(t.Context(), time.Now(), time.Hour)
		err := worker.SettleAll([]*thing{h}, func() (func(*thing) bool, error) {
			if answered {
				return nil, pg.ErrRefused
			}
			return nil, errNetwork
		})
		if err == nil || h.Over() {
			t.Errorf("answered %v: got %v, over %v", answered, err, h.Over())
		}
		_ = h.Settle(func() (bool, error) { return true, pg.ErrLeaseLost })
		if h.Lost() != answered {
			t.Errorf("answered %v: lost %v", answered, h.Lost())
		}
	}
}

// A hold is not extended while a statement about it runs, nor after it is over.
func TestHeartbeatsKeepOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		var mu sync.Mutex
		extended := map[*thing]int{}
		times := func(held *thing) int {
			mu.Lock()
			defer mu.Unlock()
			return extended[held]
		}
		b := &worker.Heartbeat[*thing]{
			Every: time.Second, AtOnce: 10,
			ExtendAll: func(_ context.Context, things []*thing) {
				mu.Lock()
				defer mu.Unlock()
				for _, held := range things {
					extended[held]++
				}
			},
		}
		b.Init()
		idle, settling, over := &thing{}, &thing{}, &thing{}
		for _, held := range []*thing{idle, settling, over} {
			held.Init(ctx, time.Now(), 3*time.Second)
			b.Add(held)
		}
		if err := over.Settle(func() (bool, error) { return true, nil }); err != nil {
			t.Fatal(err)
		}
		go b.Run(ctx)
		err := settling.Settle(func() (bool, error) {
			await.Pass(4510 * time.Millisecond) // between two looks of the heartbeat
			return false, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if times(idle) < 4 || times(settling) != 0 || times(over) != 0 {
			t.Errorf("extended %d, %d and %d times", times(idle), times(settling), times(over))
		}
		await.Pass(time.Second)
		synctest.Wait()
		if times(settling) != 1 {
			t.Errorf("extended %d times after that", times(settling))
		}
		stop()
		synctest.Wait()
	})
}

// chain is a kind of work whose batches are free one after another, as those of a slot are. Nobody
// tells when one is free.
type chain struct {
	settles bool // its batches are finished when they have run
	mu      sync.Mutex
	held    bool
	left    int
	done    chan struct{} // closed when none is left
}

func (c *chain) Room(context.Context) int { return 1 }

func (c *chain) Take(_ context.Context, _ int, done *thing, _ bool) (*thing, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if done != nil {
		c.end()
	}
	if c.held || c.left == 0 {
		return nil, nil
	}
	c.held = true
	return &thing{}, nil
}

func (c *chain) end() {
	c.held = false
	if c.left--; c.left == 0 {
		close(c.done)
	}
}

func (c *chain) Runner(*worker.Worker) func(context.Context, *thing) bool {
	return func(ctx context.Context, held *thing) bool {
		await.Pass(time.Second)
		if c.settles {
			c.Finish(ctx, held)
		}
		return !c.settles
	}
}

func (c *chain) Finish(context.Context, *thing) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.end()
}

func (c *chain) Release(context.Context, *thing)        {}
func (c *chain) Lost(*thing)                            {}
func (c *chain) KeepAlive(context.Context)              {}
func (c *chain) Rest() (time.Duration, <-chan struct{}) { return time.Hour, nil }

// A worker that ends a batch does not wait for one that found nothing and rests: it may take the next
// batch, which is free by now.
func TestAWorkerThatRestsGivesItsTurn(t *testing.T) {
	for _, settles := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			c := &chain{settles: settles, left: 5, done: make(chan struct{})}
			began := time.Now()
			ended := make(chan error)
			go func() {
				ended <- worker.Run(ctx, ctx, c, worker.Config{Workers: 3, Chained: true, Log: slog.New(slog.DiscardHandler)})
			}()
			<-c.done
			if took := time.Since(began); took > time.Minute {
				t.Errorf("settles %v: five batches of a second took %v", settles, took)
			}
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		})
	}
}

// crowded is a chain that has room for one batch, and then none until the stop.
type crowded struct {
	chain
	asked bool
}

func (c *crowded) Room(stop context.Context) int {
	if !c.asked {
		c.asked = true
		return 1
	}
	<-stop.Done()
	return 0
}

// A batch that waits for the next take is finished if the stop comes instead.
func TestABatchIsFinishedWhenTheStopComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		c := &crowded{chain: chain{left: 1, done: make(chan struct{})}}
		ended := make(chan error)
		go func() {
			ended <- worker.Run(ctx, t.Context(), c, worker.Config{Workers: 1, Log: slog.New(slog.DiscardHandler)})
		}()
		await.Pass(time.Minute)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if c.left > 0 {
			t.Error("the batch was not finished")
		}
	})
}

// Work that makes no step for longer than patience is not extended any more. The time does
// not begin before its first step.
func TestWorkWithoutStepsIsLeftToExpire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		extended, stuck := map[*thing]int{}, []*thing{}
		b := &worker.Heartbeat[*thing]{
			Every: time.Second, AtOnce: 10, Patience: 10 * time.Second,
			Stuck: func(held *thing) { stuck = append(stuck, held) },
			ExtendAll: func(_ context.Context, things []*thing) {
				for _, held := range things {
					extended[held]++
					held.Extended(time.Now(), time.Minute)
				}
			},
		}
		b.Init()
		waits, hangs, moves := &thing{}, &thing{}, &thing{}
		for _, held := range []*thing{waits, hangs, moves} {
			held.Init(ctx, time.Now(), time.Minute)
			b.Add(held)
		}
		hangs.Step()
		go b.Run(ctx)
		for range 60 {
			moves.Step()
			await.Pass(time.Second)
		}
		synctest.Wait()
		if extended[hangs] > 12 || extended[waits] < 50 || extended[moves] < 50 {
			t.Errorf("extended %d times though it hangs, %d times before it began, %d times while it went on", extended[hangs], extended[waits], extended[moves])
		}
		if !slices.Equal(stuck, []*thing{hangs}) {
			t.Errorf("%d were reported to hang", len(stuck))
		}
		stop()
		synctest.Wait()
	})
}

// Outages are retried after a pause and logged once; permanent errors are returned.
func TestRetry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		retry := worker.Retry{Outages: true, Trouble: &worker.Trouble{Log: slog.New(slog.NewTextHandler(&log, nil)), Message: "cannot settle yet"}}
		began, tries := time.Now(), 0
		err := retry.Do(t.Context(), func(context.Context) error {
			if tries++; tries < 4 {
				return errNetwork
			}
			return nil
		})
		if waited := time.Since(began); err != nil || waited != 3*worker.TroubleWait {
			t.Errorf("%v after %v", err, waited)
		}
		if n := strings.Count(log.String(), "cannot settle yet"); n != 2 || !strings.Contains(log.String(), "trouble is over") {
			t.Errorf("logged:\n%s", log.String())
		}
		if err := retry.Do(t.Context(), func(context.Context) error { return pg.ErrRefused }); !errors.Is(err, pg.ErrRefused) {
			t.Error(err)
		}
	})
}

// A handler that always fails does not fill the log, and the log has the number of
// failures that were left out.
func TestFailuresAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f := worker.Failures{Log: slog.New(slog.NewTextHandler(&log, nil))}
		for range 1000 {
			f.Report(false, "a handler failed")
		}
		f.Report(true, "a dead letter")
		await.Pass(time.Minute)
		f.Report(false, "a handler failed")
		text := log.String()
		if n := strings.Count(text, "a handler failed"); n != 21 || !strings.Contains(text, "left_out=980") || !strings.Contains(text, "a dead letter") {
			t.Errorf("%d messages:\n%s", n, text)
		}
	})
}
