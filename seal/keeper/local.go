package keeper

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/crypto/nacl/secretbox"
)

const (
	keyScheme = "base64key"
	keySize   = 32
	nonceSize = 24
)

// local is a keeper whose key is in memory. A wrapped key has the format of
// gocloud.dev/secrets/localsecrets: a nonce and a secretbox.
type local struct {
	mu     sync.RWMutex
	key    [keySize]byte
	closed bool
}

// errClosed prevents wrapping with the zeros that Close leaves.
var errClosed = errors.New("the keeper is closed")

func (l *local) Encrypt(_ context.Context, plaintext []byte) ([]byte, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return nil, errClosed
	}
	var nonce [nonceSize]byte
	rand.Read(nonce[:])
	return secretbox.Seal(nonce[:], plaintext, &nonce, &l.key), nil
}

func (l *local) Decrypt(_ context.Context, ciphertext []byte) ([]byte, error) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	if l.closed {
		return nil, errClosed
	}
	if len(ciphertext) < nonceSize {
		return nil, errors.New("the ciphertext is too short for a wrapped key")
	}
	plaintext, ok := secretbox.Open(nil, ciphertext[nonceSize:], (*[nonceSize]byte)(ciphertext), &l.key)
	if !ok {
		return nil, errors.New("the data key was wrapped by another key, or altered")
	}
	return plaintext, nil
}

func (l *local) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.key[:])
	l.closed = true
	return nil
}

// openKey opens a base64key URL.
func openKey(rawURL string) (Keeper, error) {
	key, err := parseKey([]byte(rawURL))
	if err != nil {
		return nil, fmt.Errorf("open keeper: %w", err)
	}
	return &local{key: key}, nil
}
