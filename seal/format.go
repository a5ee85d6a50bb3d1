package seal

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
)

// The format is specified in docs/sealing.md and never changes: a new one gets a
// new number, and this one stays readable.
const (
	formatVersion = 1
	headerSize    = 1 + 4 // format, key version
	nonceSize     = 12
	tagSize       = 16

	member = `"posthorn_sealed"`
	prefix = `{` + member + `:"`
	suffix = `"}`
	space  = " \t\r\n" // what JSON calls white space
)

// Strict, so that one message has one encoding.
var encoding = base64.RawURLEncoding.Strict()

// Stream is what data keys belong to.
type Stream struct{ Namespace, Name string }

func (s Stream) String() string { return s.Namespace + "/" + s.Name }

// message is what was sealed, taken apart.
type message struct {
	keyVersion uint32
	nonce      []byte
	ciphertext []byte // with the tag
}

// SealedSize is how long a payload of that many bytes is when sealed.
func SealedSize(payload int) int {
	return len(prefix) + encoding.EncodedLen(headerSize+nonceSize+payload+tagSize) + len(suffix)
}

// IsSealed says whether a payload has the form of what [Sealer.Seal] returns. It
// does not say that it opens.
func IsSealed(payload []byte) bool {
	_, err := parse(payload)
	return err == nil
}

// wrapJSON is the object that holds a message.
func wrapJSON(raw []byte) []byte {
	sealed := make([]byte, 0, len(prefix)+encoding.EncodedLen(len(raw))+len(suffix))
	sealed = append(sealed, prefix...)
	sealed = encoding.AppendEncode(sealed, raw)
	return append(sealed, suffix...)
}

func parse(sealed []byte) (message, error) {
	encoded, ok := unwrapJSON(sealed)
	if !ok || bytes.ContainsAny(encoded, "\r\n") { // which the decoder would pass over
		return message{}, ErrNotSealed
	}
	raw, err := encoding.AppendDecode(nil, encoded)
	if err != nil || len(raw) == 0 {
		return message{}, ErrNotSealed
	}
	if raw[0] != formatVersion {
		return message{}, fmt.Errorf("sealed in format %d, which this version does not know", raw[0])
	}
	if len(raw) < headerSize+nonceSize+tagSize {
		return message{}, ErrNotSealed
	}
	m := message{
		keyVersion: binary.BigEndian.Uint32(raw[1:]),
		nonce:      raw[headerSize : headerSize+nonceSize],
		ciphertext: raw[headerSize+nonceSize:],
	}
	if m.keyVersion == 0 {
		return message{}, ErrNotSealed
	}
	return m, nil
}

// unwrapJSON finds the string in the object. It allows white space, which JSON
// gains on its way, and nothing else: a JSON decoder would take other spellings of
// the member, more members, and escapes.
func unwrapJSON(sealed []byte) ([]byte, bool) {
	rest := bytes.TrimRight(sealed, space)
	for _, token := range []string{`{`, member, `:`, `"`} {
		var ok bool
		if rest, ok = bytes.CutPrefix(bytes.TrimLeft(rest, space), []byte(token)); !ok {
			return nil, false
		}
	}
	rest, closed := bytes.CutSuffix(rest, []byte(`}`))
	encoded, quoted := bytes.CutSuffix(bytes.TrimRight(rest, space), []byte(`"`))
	return encoded, closed && quoted
}

// binding is what a ciphertext or a wrapped key belongs to. Lengths stand before
// names, so no two streams have the same.
func binding(purpose string, s Stream, keyVersion uint32) []byte {
	b := []byte{formatVersion}
	for _, part := range []string{purpose, s.Namespace, s.Name} {
		b = binary.BigEndian.AppendUint32(b, uint32(len(part)))
		b = append(b, part...)
	}
	return binary.BigEndian.AppendUint32(b, keyVersion)
}

const (
	ofPayload = "payload"
	ofKey     = "data key"
)

var (
	// ErrNotSealed: the payload has not the form of what [Sealer.Seal] returns.
	ErrNotSealed = errors.New("payload is not sealed")
	// ErrAltered: the payload was changed, or sealed for another stream.
	ErrAltered = errors.New("payload was altered, or sealed for another stream")
	// ErrNoKey: the store has not that version of the stream's key. Mostly it was
	// destroyed, and what it sealed is unreadable for good.
	ErrNoKey = errors.New("the key does not exist, or not any more")
	// ErrNoKeeper: the process knows no keeper of the name that the store gives.
	ErrNoKeeper = errors.New("the keeper is not configured here")
	// ErrKeyExists: another process has added that version first.
	ErrKeyExists = errors.New("the key exists already")
	// ErrClosed: the Sealer or Opener was closed.
	ErrClosed = errors.New("sealer is closed")
)
