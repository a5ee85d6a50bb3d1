package seal

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
)

// docs/sealing.md specifies the format, which never changes: a new format gets a new
// number, and this one stays readable.
const (
	formatVersion = 1
	headerSize    = 1 + 4 // format, key version
	nonceSize     = 12
	tagSize       = 16

	member = `"posthorn_sealed"`
	prefix = `{` + member + `:"`
	suffix = `"}`
	space  = " \t\r\n" // white space in JSON
)

// The strict encoding gives each message only one text.
var encoding = base64.RawURLEncoding.Strict()

// Stream names the stream that data keys belong to.
type Stream struct{ Namespace, Name string }

func (s Stream) String() string { return s.Namespace + "/" + s.Name }

// message is a parsed sealed payload.
type message struct {
	keyVersion uint32
	nonce      []byte
	ciphertext []byte // with the tag
}

// SealedSize is the length of a payload of that many bytes after sealing.
func SealedSize(payload int) int {
	return len(prefix) + encoding.EncodedLen(headerSize+nonceSize+payload+tagSize) + len(suffix)
}

// IsSealed reports whether a payload has the form of a sealed one. Such a payload may
// still fail to open.
func IsSealed(payload []byte) bool {
	_, err := parse(payload)
	return err == nil
}

// wrapJSON returns the JSON object that contains a message.
func wrapJSON(raw []byte) []byte {
	sealed := make([]byte, 0, len(prefix)+encoding.EncodedLen(len(raw))+len(suffix))
	sealed = append(sealed, prefix...)
	sealed = encoding.AppendEncode(sealed, raw)
	return append(sealed, suffix...)
}

func parse(sealed []byte) (message, error) {
	encoded, ok := unwrapJSON(sealed)
	if !ok || bytes.ContainsAny(encoded, "\r\n") { // the decoder would skip these
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

// unwrapJSON returns the string in the object. It accepts added white space and
// nothing else: a JSON decoder would also accept other spellings of the member, more
// members, and escapes.
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

// binding encodes the stream and key version that a ciphertext or a wrapped key
// belongs to. Each name is preceded by its length, so no two streams have the same
// binding.
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
	// ErrNotSealed means that the payload does not have the form that [Sealer.Seal]
	// returns.
	ErrNotSealed = errors.New("payload is not sealed")
	// ErrAltered means that the payload was changed, or sealed for another stream.
	ErrAltered = errors.New("payload was altered, or sealed for another stream")
	// ErrNoKey means that the store does not have that version of the stream's key.
	// Usually the key was destroyed, so its payloads are permanently unreadable.
	ErrNoKey = errors.New("the key does not exist or was destroyed")
	// ErrNoKeeper means that the keeper named by the store is not among the [Keepers]
	// of this process.
	ErrNoKeeper = errors.New("the keeper is not configured here")
	// ErrKeyExists means that another process has already added that version.
	ErrKeyExists = errors.New("the key exists already")
	// ErrClosed means that the Sealer or Opener was closed.
	ErrClosed = errors.New("sealer is closed")
)
