package seal

import (
	"reflect"
	"testing"
	"unsafe"
)

// memory returns the bytes of the struct that a pointer refers to.
func memory(pointer any) []byte {
	v := reflect.ValueOf(pointer)
	return unsafe.Slice((*byte)(v.UnsafePointer()), v.Type().Elem().Size())
}

func isZero(b []byte) bool {
	for _, value := range b {
		if value != 0 {
			return false
		}
	}
	return true
}

func TestWipingZeroesTheExpandedKey(t *testing.T) {
	t.Parallel()
	plain := []byte("0123456789abcdef0123456789abcdef")
	key, err := newDataKey(Stream{"n", "s"}, 1, plain)
	if err != nil {
		t.Fatal(err)
	}
	if !isZero(plain) {
		t.Error("newDataKey has not cleared its argument")
	}
	cipher := memory(key.aead)
	if isZero(cipher) {
		t.Fatal("the cipher has no key to wipe")
	}
	key.wipe()
	if !isZero(cipher) {
		t.Error("the cipher still contains its key: has the standard library changed?")
	}
	key.share = &share{}
	key.share.add(1)
	if _, sealed := key.seal(nil); sealed {
		t.Error("a wiped key seals")
	}
	if _, _, opened := key.open(message{}); opened {
		t.Error("a wiped key opens")
	}
}
