package server

import (
	"context"
	"sync"
	"time"
)

// memo remembers for a moment what the database says, so that requests need not
// ask it each. Any number may ask for the same at once; one looks.
type memo[K comparable, V any] struct {
	load func(ctx context.Context, key K) (V, error)
	most int           // answers that are remembered at once
	lane chan struct{} // how many look at once
	now  func() time.Time

	mu      sync.Mutex
	answers map[K]*remembered[V]
}

type remembered[V any] struct {
	known chan struct{} // closed when value and err are
	value V
	err   error
	until time.Time
}

const (
	// remember is how long an answer holds. With the time that a look takes, it is
	// what a token that is revoked lives on.
	remember = 2 * time.Second
	lookTime = 3 * time.Second
)

func newMemo[K comparable, V any](most, atOnce int, now func() time.Time, load func(context.Context, K) (V, error)) *memo[K, V] {
	return &memo[K, V]{load: load, most: most, lane: make(chan struct{}, atOnce), now: now, answers: map[K]*remembered[V]{}}
}

func (m *memo[K, V]) get(ctx context.Context, key K) (V, error) {
	a := m.answer(key)
	select {
	case <-a.known:
		return a.value, a.err
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}
}

// answer returns the answer of before, or one that is being looked for.
func (m *memo[K, V]) answer(key K) *remembered[V] {
	m.mu.Lock()
	defer m.mu.Unlock()
	if a, ok := m.answers[key]; ok && m.now().Before(a.until) {
		return a
	}
	if len(m.answers) >= m.most {
		m.forget()
	}
	// It holds from now, not from when it is known.
	a := &remembered[V]{known: make(chan struct{}), until: m.now().Add(remember)}
	m.answers[key] = a
	// Others may wait for the answer: that the first who asked has gone must not end it.
	go m.look(key, a)
	return a
}

func (m *memo[K, V]) look(key K, a *remembered[V]) {
	defer close(a.known)
	ctx, cancel := context.WithTimeout(context.Background(), lookTime)
	defer cancel()
	select {
	case m.lane <- struct{}{}:
		a.value, a.err = m.load(ctx, key)
		<-m.lane
	case <-ctx.Done():
		a.err = ctx.Err()
	}
	if a.err != nil {
		m.mu.Lock()
		if m.answers[key] == a {
			delete(m.answers, key) // the next one looks again
		}
		m.mu.Unlock()
	}
}

// drop makes the next who asks look.
func (m *memo[K, V]) drop(key K) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.answers, key)
}

// forget makes room: what has lapsed goes first.
func (m *memo[K, V]) forget() {
	now := m.now()
	for key, a := range m.answers {
		if !now.Before(a.until) {
			delete(m.answers, key)
		}
	}
	if len(m.answers) >= m.most {
		clear(m.answers)
	}
}
