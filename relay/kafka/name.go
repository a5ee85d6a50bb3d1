package kafka

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// maxName is the length that Kafka allows for the name of a topic.
const maxName = 249

const hexDigits = "0123456789ABCDEF"

// names forms the names of the topics of a namespace.
type names struct{ prefix, namespace string }

func (n names) all() string { return n.prefix + "." + n.namespace + "." }

// topic returns the name of the topic of a stream. A hash replaces the end of a long name.
func (n names) topic(stream string) string {
	name := n.all() + escape(stream)
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(stream))
	hash := "-" + hex.EncodeToString(sum[:16])
	return name[:maxName-len(hash)] + hash
}

var shortened = regexp.MustCompile(`-[0-9a-f]{32}$`)

// stream returns the stream of a topic. It is empty if the name was shortened: then only
// the records have it. ours is false if the topic does not belong to the namespace.
func (n names) stream(topic string) (stream string, ours bool) {
	rest, ours := strings.CutPrefix(topic, n.all())
	if !ours || rest == "" {
		return "", false
	}
	if len(topic) == maxName && shortened.MatchString(rest) {
		return "", true
	}
	stream = unescape(rest)
	return stream, n.topic(stream) == topic
}

func isPlain(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '-' || c == '_'
}

func isHex(c byte) bool { return c >= '0' && c <= '9' || c >= 'A' && c <= 'F' }

// escape writes a byte that is not allowed as _ and two hexadecimal digits. So is a _ that
// two such digits follow; every other _ stays, since names with it are common.
func escape(text string) string {
	var b strings.Builder
	for i := range len(text) {
		c := text[i]
		if !isPlain(c) || c == '_' && isEscape(text[i:]) {
			b.Write([]byte{'_', hexDigits[c>>4], hexDigits[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// isEscape reports whether text, which begins with _, would be read as an escaped byte.
func isEscape(text string) bool { return len(text) >= 3 && isHex(text[1]) && isHex(text[2]) }

// unescape reverses escape.
func unescape(text string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == '_' && isEscape(text[i:]) {
			b.WriteByte(byte(strings.IndexByte(hexDigits, text[i+1])<<4 | strings.IndexByte(hexDigits, text[i+2])))
			i += 2
		} else {
			b.WriteByte(text[i])
		}
	}
	return b.String()
}
