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

// dataKey is an unwrapped key of one stream. It may be wiped while others use it;
// their calls then return false.
type dataKey struct {
	version uint32
	binding []byte
	// renewAt is the time at which the key is due for rotation. Zero: never.
	renewAt time.Time
	// share limits the messages to seal. Nil for keys that only open.
	share *share

	using sync.RWMutex // wiping waits for the users of the key
	aead  cipher.AEAD  // nil: wiped
}

// newDataKey makes a key of plain, and clears plain.
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

// seal returns false if the key is wiped or its share is used up.
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

// open returns false if the key is wiped.
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

// spent reports whether the share is used up. A renewal adds another share.
func (k *dataKey) spent() bool { return k.share != nil && k.share.left.Load() <= 0 }

// wipe zeroes the key when its users are done.
func (k *dataKey) wipe() {
	k.using.Lock()
	defer k.using.Unlock()
	if k.aead != nil {
		wipe(k.aead)
		k.aead = nil
	}
}

// wipe zeroes a cipher, which contains the expanded key. The standard library has no
// function for that, but its ciphers are plain structs behind a pointer. A cipher of
// another form, of other hardware or another library, is left to the garbage
// collector.
func wipe(cipher any) {
	if v := reflect.ValueOf(cipher); v.Kind() == reflect.Pointer && isFlat(v.Type().Elem()) {
		v.Elem().SetZero()
	}
}

// isFlat reports whether values of the type contain no pointers.
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

// share counts the messages that this process may still seal with a key. The store
// counts the shares, so that all processes together stay below the limit.
type share struct {
	left atomic.Int64
	next int64 // size of the next share; only the goroutine that renews the key uses it
}

const (
	firstShare = 1 << 10 // small, for processes that seal once and exit
	fullShare  = 1 << 20
)

func (s *share) take() bool { return s.left.Add(-1) >= 0 }

// add adds a share from the store. take may have counted below zero, so left is set
// and not increased.
func (s *share) add(n int64) {
	s.left.Store(n)
	s.next = min(2*s.next, fullShare)
}
