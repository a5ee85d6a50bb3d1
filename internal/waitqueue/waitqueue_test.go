package waitqueue_test

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/waitqueue"
)

// queues are wait queues with a source of news.
type queues struct {
	*waitqueue.Queues[string]
	news          chan struct{}
	subscriptions atomic.Int64
}

func open(t *testing.T, interval time.Duration) *queues {
	q := &queues{news: make(chan struct{}, 1)}
	q.Queues = waitqueue.New[string](interval, func() (<-chan struct{}, func()) {
		q.subscriptions.Add(1)
		return q.news, func() { q.subscriptions.Add(-1) }
	})
	t.Cleanup(q.Close)
	return q
}

// joinWithTurn returns the first waiter of a queue, which has the turn.
func (q *queues) joinWithTurn(t *testing.T, key string) *waitqueue.Waiter[string] {
	t.Helper()
	w := q.Join(key)
	if !w.Wait(await.Context(t)) {
		t.Fatalf("the first waiter of %s does not get the turn", key)
	}
	return w
}

func TestOneWaiterOfAQueueHasTheTurn(t *testing.T) {
	t.Parallel()
	queues := open(t, time.Hour)
	ctx := await.Context(t)
	var claiming, claims atomic.Int64
	var waiters sync.WaitGroup
	for range 50 {
		waiters.Go(func() {
			w := queues.Join("a")
			defer w.Leave()
			for claims.Add(1) < 200 && w.Wait(ctx) {
				if n := claiming.Add(1); n > 1 {
					t.Errorf("%d waiters claim at once", n)
				}
				queues.WakeAll()
				runtime.Gosched()
				claiming.Add(-1)
			}
		})
	}
	waiters.Wait()
	if claims.Load() < 200 {
		t.Errorf("only %d claims", claims.Load())
	}
}

// Found and Leave give the turn to the next waiter, without news and ticks.
func TestTheTurnIsPassedOn(t *testing.T) {
	t.Parallel()
	for how, pass := range map[string]func(w *waitqueue.Waiter[string]){
		"Found": (*waitqueue.Waiter[string]).Found,
		"Leave": (*waitqueue.Waiter[string]).Leave,
	} {
		queues := open(t, time.Hour)
		first, second := queues.joinWithTurn(t, "a"), queues.Join("a")
		arrived := make(chan bool, 1)
		go func() { arrived <- second.Wait(await.Context(t)) }()
		pass(first)
		if !await.Value(t, "the second turn after "+how, arrived) {
			t.Errorf("%s does not pass the turn on", how)
		}
	}
}

// A waiter whose time ends as its turn begins gives the turn to the next one.
func TestTheTurnIsNotLostAtTheEndOfAWait(t *testing.T) {
	t.Parallel()
	queues := open(t, time.Hour)
	ended, end := context.WithCancel(t.Context())
	end()
	first := queues.Join("a")
	for first.Wait(ended) { // the turn and the end of the time came together, and Wait has preferred the turn
		first.Found()
	}
	if !queues.Join("a").Wait(await.Context(t)) {
		t.Error("the turn was lost")
	}
}

func TestWakeIsForOneQueue(t *testing.T) {
	t.Parallel()
	queues := open(t, time.Hour)
	a := queues.joinWithTurn(t, "a")
	queues.joinWithTurn(t, "b")
	queues.Wake("none")
	queues.Wake("a")
	if !a.Wait(await.Context(t)) {
		t.Error("Wake does not give the turn")
	}
	if queues.TakeNews("b") {
		t.Error("Wake gives the turn in another queue")
	}
}

// Ticks replace news, which stays unread while nobody waits, so that its source rests.
func TestNewsStaysUnreadWhileNobodyWaits(t *testing.T) {
	t.Parallel()
	queues := open(t, time.Millisecond)
	queues.joinWithTurn(t, "a")
	queues.news <- struct{}{}
	for range 20 { // after each tick the listener looks whether somebody waits
		await.True(t, "a tick", func() bool { return queues.TakeNews("a") })
	}
	if len(queues.news) == 0 {
		t.Error("news was read while nobody waited")
	}
}

func TestListensWhileThereAreWaiters(t *testing.T) {
	t.Parallel()
	queues := open(t, time.Hour)
	want := func(n int64) {
		t.Helper()
		if got := queues.subscriptions.Load(); got != n {
			t.Errorf("%d subscriptions, want %d", got, n)
		}
	}
	for range 2 { // waiters that come after a while without waiters are heard, too
		a, b := queues.joinWithTurn(t, "a"), queues.joinWithTurn(t, "b")
		want(1)
		b.Leave()
		want(1)
		for range 10 { // the listener learns each time that a waits again
			queues.news <- struct{}{}
			if !a.Wait(await.Context(t)) {
				t.Fatal("news does not give the turn")
			}
		}
		a.Leave()
		want(0)
	}
	queues.Join("a")
	queues.Close()
	want(0)
	queues.Join("b")
	want(0)
}
