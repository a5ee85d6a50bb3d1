package archive

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"

	"github.com/posthorn/posthorn/seal"
)

// keyVersion returns the version of the key of a sealed payload: the
// four bytes after the first one of its message (docs/sealing.md).
func keyVersion(payload []byte) (int32, bool) {
	const member = `"posthorn_sealed"`
	at := bytes.Index(payload, []byte(member))
	if at < 0 || !seal.IsSealed(payload) {
		return 0, false
	}
	message := payload[at+len(member):]
	message = message[bytes.IndexByte(message, '"')+1:]
	var head [6]byte
	if _, err := base64.RawURLEncoding.Decode(head[:], message[:8]); err != nil {
		return 0, false
	}
	return int32(binary.BigEndian.Uint32(head[1:])), true
}
