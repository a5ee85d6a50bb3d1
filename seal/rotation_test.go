package seal_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/seal"
	"github.com/posthorn/posthorn/seal/sealtest"
)

// Four processes seal concurrently and rotate at every message count.
func TestRotationUnderLoadHasNoGap(t *testing.T) {
	t.Parallel()
	const processes, goroutines, each, perKey = 4, 4, 500, 100
	w := newWorld(t)
	o := w.opener(seal.Config{})
	var mu sync.Mutex
	sealedBy := map[uint32]int{}
	var group sync.WaitGroup
	for range processes {
		s := w.sealer(seal.Config{RotateCount: perKey})
		for range goroutines {
			group.Go(func() {
				for range each {
					sealed, err := s.Seal(t.Context(), patients, payload)
					if err != nil {
						t.Error(err)
						return
					}
					if err := opens(o, patients, sealed); err != nil {
						t.Error(err)
					}
					mu.Lock()
					sealedBy[seal.KeyVersion(sealed)]++
					mu.Unlock()
				}
			})
		}
	}
	group.Wait()
	for version, count := range sealedBy {
		if count > perKey {
			t.Errorf("key %d has sealed %d", version, count)
		}
	}
	if len(sealedBy) < processes*goroutines*each/perKey {
		t.Errorf("only %d keys were used", len(sealedBy))
	}
}

func TestCountOfAllProcesses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	seen := map[uint32]int{}
	for range 10 {
		s := w.sealer(seal.Config{RotateCount: 3 * 1024})
		seen[seal.KeyVersion(w.seal(s))]++
		s.Close()
	}
	// Each process takes a share of 1024, whose rest is lost when the process ends.
	if seen[1] != 3 || seen[2] != 3 || seen[3] != 3 || seen[4] != 1 {
		t.Errorf("the keys have sealed %v", seen)
	}
}

// A share per renewal would wear out the key.
func TestRenewingAKeyTakesNoShareOfTheCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := w.sealer(seal.Config{})
		for range 1000 {
			w.seal(s)
			await.Pass(time.Minute)
		}
		if used, err := w.keys.Use(t.Context(), patients, 1, 0); used != 1024 || err != nil {
			t.Errorf("1000 messages have used %d, %v", used, err)
		}
	})
}

func TestKeysRotateByAgeAndOldOnesStayReadable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		one, two := w.sealer(seal.Config{RotateAfter: 24 * time.Hour}), w.sealer(seal.Config{RotateAfter: 24 * time.Hour})
		var all [][]byte
		began := time.Now()
		for time.Since(began) < 10*24*time.Hour {
			for _, s := range []*seal.Sealer{one, two} {
				sealed := w.seal(s)
				all = append(all, sealed)
				// A key that is due for rotation may be used for the rest of its time
				// in the cache.
				if day := uint32(time.Since(began)/(24*time.Hour)) + 1; seal.KeyVersion(sealed)+1 < day {
					t.Fatalf("day %d is sealed with key %d", day, seal.KeyVersion(sealed))
				}
			}
			await.Pass(7 * time.Minute)
		}
		if w.last() != 10 {
			t.Errorf("ten days have made %d keys", w.last())
		}
		o := w.opener(seal.Config{})
		for _, sealed := range all {
			w.mustOpen(o, sealed)
		}
		if logged := w.log.String(); logged != "" {
			t.Error(logged)
		}
	})
}

func TestAStreamMayHaveItsOwnAgeAndKeeper(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		s := seal.NewSealer(w.keys, seal.Keepers{"": w.keeper, "vault": newKeeper()}, w.config(seal.Config{}))
		defer s.Close()
		first := w.seal(s)
		w.keys.SetPolicy(patients, "vault", time.Hour)
		await.Pass(time.Hour)
		second := w.seal(s)
		if seal.KeyVersion(second) != 2 {
			t.Errorf("sealed with key %d", seal.KeyVersion(second))
		}
		w.mustOpen(s.Opener, first)
		w.mustOpen(s.Opener, second)
		if err := opens(w.opener(seal.Config{}), patients, second); err == nil || !strings.Contains(err.Error(), `"vault" is not configured`) {
			t.Errorf("without the keeper: %v", err)
		}
	})
}

// meetingStore blocks Add until two callers have seen that there is no key.
type meetingStore struct {
	seal.Keys
	both *sync.WaitGroup
	once sync.Once
}

func (m *meetingStore) Add(ctx context.Context, s seal.Stream, key seal.WrappedKey) error {
	m.once.Do(func() { m.both.Done(); m.both.Wait() })
	return m.Keys.Add(ctx, s, key)
}

func TestConcurrentRotationsAgree(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var both, group sync.WaitGroup
	both.Add(2)
	for range 2 {
		s := seal.NewSealer(&meetingStore{Keys: w.keys, both: &both}, w.keepers(), w.config(seal.Config{}))
		defer s.Close()
		group.Go(func() {
			sealed, err := s.Seal(t.Context(), patients, payload)
			if err != nil || seal.KeyVersion(sealed) != 1 {
				t.Errorf("sealed %s, %v", sealed, err)
			}
		})
	}
	group.Wait()
	if w.last() != 1 {
		t.Errorf("they have made %d keys", w.last())
	}
}

func TestShreddingMakesThePastUnreadable(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const age = 10 * time.Minute
		w := newWorld(t)
		s := w.sealer(seal.Config{MaxAge: age, RotateAfter: time.Hour})
		idle, busy := w.opener(seal.Config{MaxAge: age}), w.opener(seal.Config{MaxAge: age})
		var past [][]byte
		for range 3 {
			past = append(past, w.seal(s))
			await.Pass(time.Hour)
		}
		newest := w.seal(s)
		w.mustOpen(idle, newest)
		w.mustOpen(busy, newest)
		w.shred()
		shredded := time.Now()
		for _, sealed := range past {
			if err := opens(w.opener(seal.Config{}), patients, sealed); !errors.Is(err, seal.ErrNoKey) {
				t.Errorf("a new process: %v", err)
			}
		}
		for time.Since(shredded) < age {
			// A process that opens often renews its keys, and notices in half of the
			// time.
			if err := opens(busy, patients, newest); time.Since(shredded) >= age/2 && !errors.Is(err, seal.ErrNoKey) {
				t.Errorf("busy, after %v: %v", time.Since(shredded), err)
			}
			await.Pass(time.Minute)
		}
		for name, o := range map[string]*seal.Opener{"idle": idle, "busy": busy, "sealer": s.Opener} {
			if err := opens(o, patients, newest); !errors.Is(err, seal.ErrNoKey) {
				t.Errorf("%s, which had the key: %v", name, err)
			}
		}
		fresh := w.seal(s)
		if seal.KeyVersion(fresh) != seal.KeyVersion(newest)+1 {
			t.Errorf("after key %d comes %d", seal.KeyVersion(newest), seal.KeyVersion(fresh))
		}
		w.mustOpen(w.opener(seal.Config{}), fresh)
	})
}

// A key that cannot be unwrapped must not become the sealing key.
func TestAKeeperThatOnlyWrapsMakesNoKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.keeper.before = func(context.Context) error { return errors.New("no right to decrypt") }
	if _, err := w.sealer(seal.Config{}).Seal(t.Context(), patients, payload); err == nil || w.last() != 0 {
		t.Errorf("%d keys were made, %v", w.last(), err)
	}
}

type plainKeeper struct{}

func (plainKeeper) Encrypt(_ context.Context, b []byte) ([]byte, error) { return b, nil }
func (plainKeeper) Decrypt(_ context.Context, b []byte) ([]byte, error) { return b, nil }

func TestAKeeperThatDoesNotEncryptIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := seal.NewSealer(w.keys, seal.Keepers{"": plainKeeper{}}, seal.Config{})
	defer s.Close()
	if _, err := s.Seal(t.Context(), patients, payload); err == nil || w.last() != 0 {
		t.Errorf("%d keys were made, %v", w.last(), err)
	}
}

func TestTheStoreInMemory(t *testing.T) {
	t.Parallel()
	sealtest.TestStore(t, func(*testing.T) sealtest.Store { return &sealtest.Keys{} })
}

// addUnopened adds keys that no keeper can unwrap, which a publisher has the
// permission to do.
func (w *world) addUnopened(n int) {
	w.t.Helper()
	for range n {
		key := seal.WrappedKey{Version: w.last() + 1, Key: seal.Wrapped{0xde, 0xad, 0xbe, 0xef}}
		if err := w.keys.Add(context.Background(), patients, key); err != nil {
			w.t.Fatal(err)
		}
	}
}

// If the newest key does not open, the newest key that opens is used.
func TestKeyThatDoesNotOpenIsSkipped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		busy := w.sealer(seal.Config{})
		w.seal(busy)
		w.addUnopened(2)
		for _, s := range []*seal.Sealer{busy, w.sealer(seal.Config{})} {
			for range 10 {
				sealed := w.seal(s)
				if version := seal.KeyVersion(sealed); version != 1 {
					t.Fatalf("sealed with key %d, want 1", version)
				}
				w.mustOpen(w.opener(seal.Config{}), sealed)
				await.Pass(5 * time.Minute)
			}
		}
		for _, version := range []string{"version=3", "version=2"} {
			if n := strings.Count(w.log.String(), version); n > 2 {
				t.Errorf("%s was reported %d times by two processes", version, n)
			}
		}
		if !strings.Contains(w.log.String(), "version=3") {
			t.Errorf("nothing was reported:\n%s", w.log)
		}
		await.Pass(30 * 24 * time.Hour)
		if version := seal.KeyVersion(w.seal(busy)); version != 4 {
			t.Errorf("after 30 days key %d seals, want a new one", version)
		}
	})
}

// If no key opens, or too many do not, one process makes a new key for all.
func TestNewKeyIfNoKeyOpens(t *testing.T) {
	t.Parallel()
	for _, n := range []int{1, 100} {
		w := newWorld(t)
		w.addUnopened(n)
		for range 3 {
			sealed := w.seal(w.sealer(seal.Config{}))
			if version := seal.KeyVersion(sealed); version != uint32(n)+1 {
				t.Errorf("after %d keys that do not open, key %d seals", n, version)
			}
			w.mustOpen(w.opener(seal.Config{}), sealed)
		}
	}
}

// While a keeper is unavailable, no key is made and no older key is used.
func TestUnavailableKeeperMakesNoKeys(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.seal(w.sealer(seal.Config{}))
		w.keeper.down.Store(true)
		if _, err := w.sealer(seal.Config{}).Seal(t.Context(), patients, payload); !errors.Is(err, errDown) || !strings.Contains(err.Error(), "unwrap key 1") {
			t.Errorf("while the keeper is unavailable: %v", err)
		}
		w.keeper.down.Store(false)
		w.keys.SetPolicy(patients, "another", 0)
		w.addUnopened(1)
		if _, err := w.sealer(seal.Config{}).Seal(t.Context(), patients, payload); err == nil {
			t.Error("a process without the keeper that the stream names seals with an older key")
		}
		if w.last() != 2 {
			t.Errorf("%d keys, want 2", w.last())
		}
	})
}
