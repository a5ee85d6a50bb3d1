package seal

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Keeper encrypts data keys with a key of its own. Every gocloud.dev/secrets.Keeper
// is a Keeper.
type Keeper interface {
	Encrypt(ctx context.Context, plaintext []byte) ([]byte, error)
	Decrypt(ctx context.Context, ciphertext []byte) ([]byte, error)
}

// Keepers are the keepers that a process may use, by the names that the store uses.
// The empty name serves streams that name no keeper. A store contains only names, so
// that an attacker who can write to it cannot make a process send its keys to a
// keeper of the attacker's choice. The map must not change while it is in use.
type Keepers map[string]Keeper

const dataKeySize = 32

// wrap makes a data key and wraps it. The plaintext begins with a hash of the stream
// and version, because keepers accept no additional data to authenticate.
func (k Keepers) wrap(ctx context.Context, name string, s Stream, version uint32) (Wrapped, error) {
	keeper, err := k.named(name)
	if err != nil {
		return nil, err
	}
	plain := append(keyHeader(s, version), make([]byte, dataKeySize)...)
	defer clear(plain)
	rand.Read(plain[len(plain)-dataKeySize:])
	wrapped, err := keeper.Encrypt(ctx, bytes.Clone(plain))
	if err != nil {
		return nil, fmt.Errorf("wrap key: %w", withhold(err, plain))
	}
	if bytes.Contains(wrapped, plain[len(plain)-dataKeySize:]) {
		return nil, errors.New("wrap key: the keeper has not encrypted it")
	}
	return wrapped, nil
}

// unwrap returns a data key, which the caller must clear.
func (k Keepers) unwrap(ctx context.Context, s Stream, key WrappedKey) ([]byte, error) {
	keeper, err := k.named(key.Keeper)
	if err != nil {
		return nil, fmt.Errorf("unwrap key %d: %w", key.Version, err)
	}
	plain, err := keeper.Decrypt(ctx, bytes.Clone(key.Key))
	if err != nil {
		return nil, fmt.Errorf("unwrap key %d: %w", key.Version, withhold(err, key.Key))
	}
	header := keyHeader(s, key.Version)
	if len(plain) != len(header)+dataKeySize || subtle.ConstantTimeCompare(plain[:len(header)], header) != 1 {
		clear(plain)
		return nil, fmt.Errorf("unwrap key %d: it belongs to another stream or version", key.Version)
	}
	return plain[len(header):], nil
}

func (k Keepers) named(name string) (Keeper, error) {
	if keeper := k[name]; keeper != nil {
		return keeper, nil
	}
	return nil, noKeeper(name)
}

// noKeeper is an [ErrNoKeeper] with the name of the keeper.
type noKeeper string

func (name noKeeper) Error() string        { return fmt.Sprintf("keeper %q is not configured", string(name)) }
func (name noKeeper) Is(target error) bool { return target == ErrNoKeeper }

func keyHeader(s Stream, version uint32) []byte {
	hash := sha256.Sum256(binding(ofKey, s, version))
	return append([]byte{formatVersion}, hash[:]...)
}

// withhold returns the error of a keeper or store, unless its text contains a part of
// the secret in a common encoding.
func withhold(err error, secret []byte) error {
	const piece = 12 // so that base64 has no remainder
	text := err.Error()
	for i := 0; i+piece <= len(secret); i++ {
		for _, spelling := range spellings(secret[i : i+piece]) {
			if strings.Contains(text, spelling) {
				return errors.New("it failed with a message that has key material in it, which is withheld")
			}
		}
	}
	return err
}

func spellings(b []byte) []string {
	var decimals []string
	for _, value := range b {
		decimals = append(decimals, strconv.Itoa(int(value)))
	}
	quoted := strconv.Quote(string(b))
	return []string{
		string(b), quoted[1 : len(quoted)-1], hex.EncodeToString(b), strings.ToUpper(hex.EncodeToString(b)), strings.Join(decimals, " "), strings.Join(decimals, ","),
		base64.StdEncoding.EncodeToString(b), base64.URLEncoding.EncodeToString(b),
	}
}
