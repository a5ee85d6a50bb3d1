// Package sealtest has an in-memory store of keys, and conformance tests for stores.
package sealtest

import (
	"bytes"
	"context"
	"sync"
	"time"

	"github.com/posthorn/posthorn/seal"
)

// Keys is a [seal.Keys] in memory: when the process ends, everything sealed with it
// is unreadable. The zero value is an empty store.
type Keys struct {
	mu    sync.Mutex
	rings map[seal.Stream]*ring
}

type ring struct {
	seal.Ring
	used map[uint32]int64
}

// Load implements [seal.Keys].
func (k *Keys) Load(_ context.Context, s seal.Stream) (seal.Ring, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	loaded := k.ring(s).Ring
	loaded.Keys = nil
	for _, key := range k.ring(s).Keys {
		key.Key = bytes.Clone(key.Key)
		loaded.Keys = append(loaded.Keys, key)
	}
	return loaded, nil
}

// Add implements [seal.Keys].
func (k *Keys) Add(_ context.Context, s seal.Stream, key seal.WrappedKey) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.ring(s)
	if key.Version != r.Last+1 {
		return seal.ErrKeyExists
	}
	key.Created = time.Now()
	key.Key = bytes.Clone(key.Key)
	r.Keys = append(r.Keys, key)
	r.Last = key.Version
	r.used[key.Version] = 0
	return nil
}

// Use implements [seal.Keys].
func (k *Keys) Use(_ context.Context, s seal.Stream, version uint32, n int64) (int64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	used := k.ring(s).used
	if _, found := used[version]; !found {
		return 0, seal.ErrNoKey
	}
	used[version] += n
	return used[version], nil
}

// Shred destroys the keys of a stream.
func (k *Keys) Shred(_ context.Context, s seal.Stream) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ring(s).Keys = nil
	clear(k.ring(s).used)
	return nil
}

// SetPolicy sets the keeper and the rotation age of the stream's next keys.
func (k *Keys) SetPolicy(s seal.Stream, keeper string, rotateAfter time.Duration) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ring(s).Keeper, k.ring(s).RotateAfter = keeper, rotateAfter
}

func (k *Keys) ring(s seal.Stream) *ring {
	if k.rings == nil {
		k.rings = map[seal.Stream]*ring{}
	}
	if k.rings[s] == nil {
		k.rings[s] = &ring{used: map[uint32]int64{}}
	}
	return k.rings[s]
}
