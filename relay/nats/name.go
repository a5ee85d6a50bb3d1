package nats

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
)

// A stream of Posthorn becomes a JetStream stream with the name
// prefix+namespace+stream and the subjects prefix.namespace.stream.type. JetStream
// allows few characters there: all others are written as = and two hexadecimal digits.

// maxName limits the length of a JetStream name, since the server creates a directory
// with that name. The subjects contain the whole name of the stream.
const maxName = 200

// The bytes that are not escaped in names of streams, in stream parts of subjects, and
// in event types.
var (
	nameBytes   = plainBytes("-_")
	streamBytes = plainBytes("-_:")
	typeBytes   = plainBytes("-_:.")
)

func plainBytes(more string) [256]bool {
	return byteSet(func(c byte) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(more, c) >= 0
	})
}

func byteSet(contains func(c byte) bool) (set [256]bool) {
	for c := range set {
		set[c] = contains(byte(c))
	}
	return set
}

const hexDigits = "0123456789ABCDEF"

// escapeBytes replaces each byte that is not plain by the escape character and two
// hexadecimal digits.
func escapeBytes(text string, escape byte, plain *[256]bool) string {
	i := 0
	for i < len(text) && plain[text[i]] {
		i++
	}
	if i == len(text) {
		return text
	}
	var b strings.Builder
	b.Grow(len(text) + 2*(len(text)-i)/3)
	b.WriteString(text[:i])
	for ; i < len(text); i++ {
		if c := text[i]; plain[c] {
			b.WriteByte(c)
		} else {
			b.Write([]byte{escape, hexDigits[c>>4], hexDigits[c&15]})
		}
	}
	return b.String()
}

// unescapeBytes reverses escapeBytes.
func unescapeBytes(text string, escape byte) (string, error) {
	i := strings.IndexByte(text, escape)
	if i < 0 {
		return text, nil
	}
	b := make([]byte, 0, len(text))
	for ; i >= 0; i = strings.IndexByte(text, escape) {
		b = append(b, text[:i]...)
		if len(text) < i+3 {
			return "", errors.New("an escape is cut off")
		}
		c, err := hex.DecodeString(text[i+1 : i+3])
		if err != nil {
			return "", err
		}
		b = append(b, c...)
		text = text[i+3:]
	}
	return string(append(b, text...)), nil
}

// escapeName escapes a name for a JetStream stream or a key.
func escapeName(name string) string { return escapeBytes(name, '=', &nameBytes) }

// names forms the names of the JetStream streams of a namespace.
type names struct{ prefix, namespace string }

// stream returns the name of a JetStream stream. A hash replaces the end of a long name.
func (n names) stream(stream string) string {
	name := n.prefix + "+" + n.namespace + "+" + escapeName(stream)
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(stream))
	hash := "~" + hex.EncodeToString(sum[:16])
	return name[:maxName-len(hash)] + hash
}

// subject returns the prefix of a stream's subjects, which the type completes. Colons
// are not escaped, so that filters look like shop.stream:user:events.user.>
func (n names) subject(stream string) string {
	return n.all() + escapeBytes(stream, '=', &streamBytes) + "."
}

// all returns the prefix of all subjects of the namespace.
func (n names) all() string { return n.prefix + "." + n.namespace + "." }

// streamOf returns the stream of a JetStream stream, whose config has the subjects. It
// returns false if the JetStream stream does not belong to the namespace.
func (n names) streamOf(subjects []string) (string, bool) {
	if len(subjects) != 1 {
		return "", false
	}
	rest, ours := strings.CutPrefix(subjects[0], n.all())
	token, all := strings.CutSuffix(rest, ".>")
	if !ours || !all || token == "" || strings.Contains(token, ".") {
		return "", false
	}
	stream, err := unescapeBytes(token, '=')
	return stream, err == nil && stream != ""
}

// typeTokens returns a type as the end of a subject. The parts of the type become
// tokens, so that order.* and order.> match it. NATS allows no empty tokens, so a type
// with an empty part becomes a single token.
func typeTokens(eventType string) string {
	if strings.HasPrefix(eventType, ".") || strings.HasSuffix(eventType, ".") || strings.Contains(eventType, "..") {
		return escapeBytes(eventType, '=', &streamBytes)
	}
	return escapeBytes(eventType, '=', &typeBytes)
}
