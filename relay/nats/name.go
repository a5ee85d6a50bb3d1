package nats

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strings"
)

// A stream of Posthorn is one of JetStream's, named prefix+namespace+stream, with
// the subjects prefix.namespace.stream.type. JetStream's names and subjects take
// few characters: the others are written as = and two hexadecimal digits.

// longestName is how long a JetStream name may become: it is a directory of the
// server's. The subject has it whole.
const longestName = 200

const hexDigits = "0123456789ABCDEF"

// escape writes a text with letters, digits, -, _ and what else is allowed.
func escape(text, allowed string) string {
	plain := func(c byte) bool {
		return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' ||
			strings.IndexByte(allowed, c) >= 0
	}
	i := 0
	for i < len(text) && plain(text[i]) {
		i++
	}
	if i == len(text) {
		return text
	}
	var b strings.Builder
	b.WriteString(text[:i])
	for ; i < len(text); i++ {
		if c := text[i]; plain(c) {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'=', hexDigits[c>>4], hexDigits[c&15]})
		}
	}
	return b.String()
}

// unescape is what escape was given.
func unescape(text string) (string, error) {
	var b strings.Builder
	for {
		plain, rest, more := strings.Cut(text, "=")
		b.WriteString(plain)
		if !more {
			return b.String(), nil
		}
		if len(rest) < 2 {
			return "", errors.New("an escape is cut off")
		}
		c, err := hex.DecodeString(rest[:2])
		if err != nil {
			return "", err
		}
		b.Write(c)
		text = rest[2:]
	}
}

// names are those of one namespace's streams.
type names struct{ prefix, namespace string }

// stream is the name of a JetStream stream.
func (n names) stream(stream string) string {
	name := n.prefix + "+" + n.namespace + "+" + escape(stream, "")
	if len(name) <= longestName {
		return name
	}
	sum := sha256.Sum256([]byte(stream))
	tail := "~" + hex.EncodeToString(sum[:16])
	return name[:longestName-len(tail)] + tail
}

// subject is what the subjects of a stream begin with; the type follows. Colons
// stay as they are: filters look like shop.stream:user:events.user.>
func (n names) subject(stream string) string {
	return n.all() + escape(stream, ":") + "."
}

// all is what the subjects of the whole namespace begin with.
func (n names) all() string { return n.prefix + "." + n.namespace + "." }

// streamOf is the stream that has some subjects, as a JetStream stream's config
// lists them; false if it is none of the namespace.
func (n names) streamOf(subjects []string) (string, bool) {
	if len(subjects) != 1 {
		return "", false
	}
	rest, ours := strings.CutPrefix(subjects[0], n.all())
	token, all := strings.CutSuffix(rest, ".>")
	if !ours || !all || token == "" || strings.Contains(token, ".") {
		return "", false
	}
	stream, err := unescape(token)
	return stream, err == nil && stream != ""
}

// typeTokens is a type as the end of a subject: its parts are tokens, so that
// order.* and order.> find it. A type that has an empty part is one token.
func typeTokens(eventType string) string {
	if strings.HasPrefix(eventType, ".") || strings.HasSuffix(eventType, ".") || strings.Contains(eventType, "..") {
		return escape(eventType, ":")
	}
	return escape(eventType, ":.")
}
