package page

import (
	"context"
	"sync"
	"time"
)

// shared keeps the answers of queries for a moment, so that any number of browsers cost
// as much as one. Of those who ask for the same at once, one asks the database.
type shared[V any] struct {
	mu      sync.Mutex
	answers map[string]*kept[V]
}

type kept[V any] struct {
	known chan struct{} // closed when value and err are there
	value V
	err   error
	until time.Time
}

// mostKept bounds how many answers are kept.
const mostKept = 1000

// get returns the answer that is kept under a key, or loads it. The load says until
// when its answer is kept; it does not end when the first who asked for it goes away.
func (s *shared[V]) get(ctx context.Context, key string, timeout time.Duration, load func(context.Context) (V, time.Time, error)) (V, error) {
	s.mu.Lock()
	k, ok := s.answers[key]
	if !ok || time.Now().After(k.until) {
		k = &kept[V]{known: make(chan struct{}), until: time.Now().Add(timeout)}
		s.keep(key, k)
		go func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), timeout)
			defer cancel()
			value, until, err := load(ctx)
			s.mu.Lock()
			k.value, k.err = value, err
			if k.until = until; err != nil {
				k.until = time.Time{} // the next one asks again
			}
			s.mu.Unlock()
			close(k.known)
		}()
	}
	s.mu.Unlock()
	select {
	case <-k.known:
		return k.value, k.err
	case <-ctx.Done():
		var none V
		return none, ctx.Err()
	}
}

func (s *shared[V]) keep(key string, k *kept[V]) {
	if s.answers == nil {
		s.answers = map[string]*kept[V]{}
	}
	if len(s.answers) >= mostKept {
		now := time.Now()
		for key, old := range s.answers {
			if now.After(old.until) {
				delete(s.answers, key)
			}
		}
		if len(s.answers) >= mostKept {
			clear(s.answers)
		}
	}
	s.answers[key] = k
}

// forget drops all answers: something has changed.
func (s *shared[V]) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.answers)
}
