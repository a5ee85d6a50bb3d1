package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/binary"
	"reflect"
	"sync"
	"sync/atomic"
	"time"
)

// dataKey is an unwrapped key of one stream. It may be wiped while others use it:
// then they are told.
type dataKey struct {
	version uint32
	binding []byte
	// renewAt is when the key has to be looked at again although it is not old. Zero: never.
	renewAt time.Time
	// share is what may still be sealed. Nil for keys that only open.
	share *share

	using sync.RWMutex // wiping waits for those who use the key
	aead  cipher.AEAD  // nil: wiped
}

// newDataKey clears the key that it is made of.
func newDataKey(s Stream, version uint32, plain []byte) (*dataKey, error) {
	defer clear(plain)
	block, err := aes.NewCipher(plain)
	if err != nil {
		return nil, err
	}
	defer wipe(block) // GCM has its own copy
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	return &dataKey{version: version, binding: binding(ofPayload, s, version), aead: aead}, nil
}

// seal returns false when the key is wiped or its share used up.
func (k *dataKey) seal(plaintext []byte) ([]byte, bool) {
	var nonce [nonceSize]byte
	rand.Read(nonce[:])
	if !k.share.take() {
		return nil, false
	}
	return k.sealWith(nonce, plaintext)
}

func (k *dataKey) sealWith(nonce [nonceSize]byte, plaintext []byte) ([]byte, bool) {
	k.using.RLock()
	defer k.using.RUnlock()
	if k.aead == nil {
		return nil, false
	}
	raw := make([]byte, 0, headerSize+nonceSize+len(plaintext)+tagSize)
	raw = append(raw, formatVersion)
	raw = binary.BigEndian.AppendUint32(raw, k.version)
	raw = append(raw, nonce[:]...)
	return wrapJSON(k.aead.Seal(raw, nonce[:], plaintext, k.binding)), true
}

// open returns false when the key is wiped.
func (k *dataKey) open(m message) ([]byte, error, bool) {
	k.using.RLock()
	defer k.using.RUnlock()
	if k.aead == nil {
		return nil, nil, false
	}
	plaintext, err := k.aead.Open([]byte{}, m.nonce, m.ciphertext, k.binding)
	if err != nil {
		return nil, ErrAltered, true
	}
	return plaintext, nil, true
}

// spent: the key seals no more until it gets another share.
func (k *dataKey) spent() bool { return k.share != nil && k.share.left.Load() <= 0 }

// wipe zeroes the key, when those who use it are done.
func (k *dataKey) wipe() {
	k.using.Lock()
	defer k.using.Unlock()
	if k.aead != nil {
		wipe(k.aead)
		k.aead = nil
	}
}

// wipe zeroes a cipher, which has the expanded key in it. The standard library has
// no way to ask for that, but its ciphers are plain structs behind a pointer. One
// that is not (made for other hardware or another library) is left to the
// garbage collector.
func wipe(cipher any) {
	if v := reflect.ValueOf(cipher); v.Kind() == reflect.Pointer && isFlat(v.Type().Elem()) {
		v.Elem().SetZero()
	}
}

// isFlat: all of the value is in the value itself.
func isFlat(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Struct:
		for field := range t.Fields() {
			if !isFlat(field.Type) {
				return false
			}
		}
		return true
	case reflect.Array:
		return isFlat(t.Elem())
	default:
		return t.Kind() >= reflect.Bool && t.Kind() <= reflect.Complex128
	}
}

// share is how many messages this process may still seal with a key. Shares come
// from the store's count, so that all processes together stay below the bound.
type share struct {
	left atomic.Int64
	next int64 // how much to ask for; only whoever renews the key looks at it
}

const (
	firstShare = 1 << 10 // little, for those who seal once and exit
	fullShare  = 1 << 20
)

func (s *share) take() bool { return s.left.Add(-1) >= 0 }

// add is what came from the store. Those who came too late have drawn below zero.
func (s *share) add(n int64) {
	s.left.Store(n)
	s.next = min(2*s.next, fullShare)
}
