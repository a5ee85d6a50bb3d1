package seal_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/seal"
)

func TestConcurrentCallersUnwrapOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		sealed := w.seal(w.sealer(seal.Config{}))
		goOn := make(chan struct{})
		w.keeper.before = func(context.Context) error { <-goOn; return nil }
		w.keeper.decrypted.Store(0)
		o := w.opener(seal.Config{})
		var group sync.WaitGroup
		for range 50 {
			group.Go(func() { w.mustOpen(o, sealed) })
		}
		synctest.Wait()
		close(goOn)
		group.Wait()
		w.mustOpen(o, sealed)
		if n := w.keeper.decrypted.Load(); n != 1 {
			t.Errorf("unwrapped %d times", n)
		}
	})
}

// The caller that loads a key may give up; the callers that wait must not fail for
// that reason.
func TestCanceledLoadDoesNotFailWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		sealed := w.seal(w.sealer(seal.Config{}))
		w.keeper.before = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		o := w.opener(seal.Config{})
		first, giveUp := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() {
			if _, err := o.Open(first, patients, sealed); !errors.Is(err, context.Canceled) {
				t.Errorf("the first: %v", err)
			}
		})
		synctest.Wait()
		group.Go(func() { w.mustOpen(o, sealed) })
		second, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := o.Open(second, patients, sealed); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the caller with a short timeout: %v", err)
		}
		w.keeper.before = nil
		giveUp()
		group.Wait()
	})
}

func TestKeeperPanicReleasesWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		sealed := w.seal(w.sealer(seal.Config{}))
		goOn := make(chan struct{})
		w.keeper.before = func(context.Context) error { <-goOn; panic("in the keeper") }
		o := w.opener(seal.Config{})
		var group sync.WaitGroup
		group.Go(func() {
			defer func() { _ = recover() }()
			_ = opens(o, patients, sealed)
		})
		synctest.Wait()
		group.Go(func() {
			if err := opens(o, patients, sealed); err == nil {
				t.Error("opened")
			}
		})
		synctest.Wait()
		close(goOn)
		group.Wait()
		w.keeper.before = nil
		w.mustOpen(o, sealed)
	})
}

func TestTheCacheHasABound(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.sealer(seal.Config{RotateCount: 1})
	o := w.opener(seal.Config{MaxKeys: 3})
	var before []func() bool
	for range 10 {
		w.mustOpen(o, w.seal(s))
		now := o.Cached()
		if len(now) > 3 {
			t.Fatalf("%d keys are in memory", len(now))
		}
		before = append(before, now...)
	}
	live := 0
	for _, wiped := range before {
		if !wiped() {
			live++
		}
	}
	if live != 3+2+1 { // the last three keys, which were looked up three times, twice and once
		t.Errorf("%d of %d keys are not wiped", live, len(before))
	}
}

// Many goroutines use few cache entries, so keys are wiped while they are in use.
func TestEvictionUnderLoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.sealer(seal.Config{MaxKeys: 2})
	var group sync.WaitGroup
	for i := range 8 {
		stream := seal.Stream{Namespace: "n", Name: fmt.Sprint(i % 4)}
		group.Go(func() {
			for range 200 {
				sealed, err := s.Seal(t.Context(), stream, payload)
				if err == nil {
					err = opens(s.Opener, stream, sealed)
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if n := len(s.Cached()); n > 2 {
		t.Errorf("%d keys are in memory", n)
	}
}

func TestUnusedKeysAreWiped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.sealer(seal.Config{MaxAge: time.Minute})
		sealed := w.seal(s)
		await.Pass(30 * time.Second)
		w.mustOpen(s.Opener, sealed)
		cached := s.Cached()
		for minute, want := range []int{1, 0} {
			await.Pass(31 * time.Second)
			synctest.Wait()
			live := 0
			for _, wiped := range cached {
				if !wiped() {
					live++
				}
			}
			if live != want || len(s.Cached()) != want {
				t.Errorf("look %d: %d keys are not wiped, %d in memory, want %d", minute, live, len(s.Cached()), want)
			}
		}
	})
}

func TestCloseWipesEverything(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.sealer(seal.Config{})
	sealed := w.seal(s)
	w.mustOpen(s.Opener, sealed)
	cached := s.Cached()
	s.Close()
	for _, wiped := range cached {
		if !wiped() {
			t.Error("a key is not wiped")
		}
	}
	_, err := s.Seal(t.Context(), patients, payload)
	if err2 := opens(s.Opener, patients, sealed); len(cached) != 2 || !errors.Is(err, seal.ErrClosed) || !errors.Is(err2, seal.ErrClosed) {
		t.Errorf("%d keys; afterwards %v, %v", len(cached), err, err2)
	}
}

// A keeper that is unavailable for less than half of maxAge causes no error, not even
// when a rotation is due. A longer failure does.
func TestShortKeeperFailureHasNoEffect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const age = 10 * time.Minute
		w := newWorld(t)
		s := w.sealer(seal.Config{MaxAge: age, RotateAfter: time.Hour})
		for range 59 {
			w.mustOpen(s.Opener, w.seal(s))
			await.Pass(time.Minute)
		}
		w.keeper.down.Store(true)
		for range 4 {
			w.mustOpen(s.Opener, w.seal(s))
			await.Pass(time.Minute)
		}
		if !strings.Contains(w.log.String(), "not renewed") {
			t.Errorf("the log contains %q", w.log.String())
		}
		w.keeper.down.Store(false)
		for range 2 {
			w.mustOpen(s.Opener, w.seal(s))
			await.Pass(time.Minute)
		}
		if w.last() != 2 {
			t.Errorf("the last key is %d", w.last())
		}
		w.keeper.down.Store(true)
		await.Pass(age)
		if _, err := s.Seal(t.Context(), patients, payload); !errors.Is(err, errDown) {
			t.Errorf("without a keeper for longer than keys are cached: %v", err)
		}
	})
}
