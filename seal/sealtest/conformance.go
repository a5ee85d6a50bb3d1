package sealtest

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/posthorn/posthorn/seal"
)

// Store is a [seal.Keys] whose keys can be destroyed.
type Store interface {
	seal.Keys
	Shred(ctx context.Context, stream seal.Stream) error
}

// TestStore uses these streams. A store that requires its streams to exist must
// create them first.
var (
	Patients = seal.Stream{Namespace: "clinic", Name: "patients"}
	Others   = seal.Stream{Namespace: "clinic2", Name: "patients"}
)

// TestStore tests the implementation of a store. newStore is called for each subtest.
func TestStore(t *testing.T, newStore func(t *testing.T) Store) {
	for name, test := range map[string]func(*testing.T, Store){
		"a stream without keys is empty":             testEmpty,
		"keys come back in order":                    testOrder,
		"streams are apart":                          testApart,
		"only the next version can be added":         testNext,
		"of many who add a version one succeeds":     testOneAdds,
		"uses add up":                                testUses,
		"destroyed keys are gone, their numbers not": testShred,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, newStore(t))
		})
	}
}

func testEmpty(t *testing.T, store Store) {
	if ring := load(t, store, Patients); ring.Last != 0 || len(ring.Keys) != 0 {
		t.Errorf("last %d, %d keys", ring.Last, len(ring.Keys))
	}
}

func testOrder(t *testing.T, store Store) {
	for version := range uint32(12) {
		add(t, store, Patients, version+1)
	}
	ring := load(t, store, Patients)
	if ring.Last != 12 || len(ring.Keys) != 12 {
		t.Fatalf("last %d, %d keys", ring.Last, len(ring.Keys))
	}
	for i, key := range ring.Keys {
		want := wrapped(uint32(i + 1))
		if key.Version != want.Version || !slices.Equal(key.Key, want.Key) || key.Keeper != want.Keeper || key.Created.IsZero() {
			t.Errorf("key %d came back as version %d of keeper %q, created %v", want.Version, key.Version, key.Keeper, key.Created)
		}
	}
}

func testApart(t *testing.T, store Store) {
	add(t, store, Patients, 1)
	if ring := load(t, store, Others); ring.Last != 0 {
		t.Errorf("the other stream's last key is %d", ring.Last)
	}
	if _, err := store.Use(t.Context(), Others, 1, 1); !errors.Is(err, seal.ErrNoKey) {
		t.Errorf("using another stream's key: %v", err)
	}
}

func testNext(t *testing.T, store Store) {
	add(t, store, Patients, 1)
	for _, version := range []uint32{0, 1, 3} {
		if err := store.Add(t.Context(), Patients, wrapped(version)); !errors.Is(err, seal.ErrKeyExists) {
			t.Errorf("adding version %d after 1: %v", version, err)
		}
	}
	add(t, store, Patients, 2)
}

func testOneAdds(t *testing.T, store Store) {
	var group sync.WaitGroup
	var added atomic.Int32
	for range 8 {
		group.Go(func() {
			switch err := store.Add(t.Context(), Patients, wrapped(1)); {
			case err == nil:
				added.Add(1)
			case !errors.Is(err, seal.ErrKeyExists):
				t.Error(err)
			}
		})
	}
	group.Wait()
	if ring := load(t, store, Patients); added.Load() != 1 || ring.Last != 1 || len(ring.Keys) != 1 {
		t.Errorf("%d added, last %d, %d keys", added.Load(), ring.Last, len(ring.Keys))
	}
}

func testUses(t *testing.T, store Store) {
	add(t, store, Patients, 1)
	add(t, store, Patients, 2)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if _, err := store.Use(t.Context(), Patients, 1, 1<<30); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for version, want := range map[uint32]int64{1: 8<<30 + 1, 2: 1} {
		if used, err := store.Use(t.Context(), Patients, version, 1); err != nil || used != want {
			t.Errorf("version %d was used %d times, want %d; %v", version, used, want, err)
		}
	}
	if _, err := store.Use(t.Context(), Patients, 3, 1); !errors.Is(err, seal.ErrNoKey) {
		t.Errorf("using a key that does not exist: %v", err)
	}
}

func testShred(t *testing.T, store Store) {
	add(t, store, Patients, 1)
	add(t, store, Patients, 2)
	add(t, store, Others, 1)
	if err := store.Shred(t.Context(), Patients); err != nil {
		t.Fatal(err)
	}
	if ring := load(t, store, Patients); ring.Last != 2 || len(ring.Keys) != 0 {
		t.Errorf("last %d, %d keys", ring.Last, len(ring.Keys))
	}
	if ring := load(t, store, Others); len(ring.Keys) != 1 {
		t.Errorf("the other stream has %d keys", len(ring.Keys))
	}
	if _, err := store.Use(t.Context(), Patients, 2, 1); !errors.Is(err, seal.ErrNoKey) {
		t.Errorf("using a destroyed key: %v", err)
	}
	if err := store.Add(t.Context(), Patients, wrapped(1)); !errors.Is(err, seal.ErrKeyExists) {
		t.Errorf("adding a destroyed version: %v", err)
	}
	add(t, store, Patients, 3)
}

// wrapped returns a key that cannot be unwrapped and contains all byte values, which
// a store must preserve.
func wrapped(version uint32) seal.WrappedKey {
	key := []byte{0, '\'', '\\', '\n', 0xff, byte(version)}
	return seal.WrappedKey{Version: version, Keeper: "a keeper", Key: append(key, make([]byte, 100)...)}
}

func add(t *testing.T, store Store, s seal.Stream, version uint32) {
	t.Helper()
	if err := store.Add(t.Context(), s, wrapped(version)); err != nil {
		t.Fatalf("add version %d: %v", version, err)
	}
}

func load(t *testing.T, store Store, s seal.Stream) seal.Ring {
	t.Helper()
	ring, err := store.Load(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	return ring
}
