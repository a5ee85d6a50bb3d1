package archive

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"
)

const (
	segmentExtension = ".jsonl.zst"
	manifestName     = "manifest.json"
	forgottenMark    = ".forgotten-" // in the name of a segment whose place a later one has taken
	// The longest part of a path that file systems take is 255 bytes; temporary
	// files have more than their names.
	longestDirectory = 200
)

// directoryOf returns a stream's name as a part of a path. Letters, digits, "-", ":",
// single "_" and "." after the first place stay; all other bytes are percent-encoded,
// also the second "_" of "__", since gocloud reads "__0x" as an escape of its own. A
// name that gets too long ends with a hash; the manifest has the full name.
func directoryOf(stream string) string {
	var b strings.Builder
	for i := range len(stream) {
		c := stream[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '-', c == ':', c == '.' && i > 0, c == '_' && (i == 0 || stream[i-1] != '_'):
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	encoded := b.String()
	if len(encoded) <= longestDirectory {
		return encoded
	}
	sum := sha256.Sum256([]byte(stream))
	cut := encoded[:longestDirectory-33]
	if i := strings.LastIndexByte(cut, '%'); i > len(cut)-3 {
		cut = cut[:i]
	}
	return cut + "~" + hex.EncodeToString(sum[:16])
}

// prefixOf returns the prefix of all objects of a stream, with a slash at its end.
func prefixOf(namespace, stream string) string { return namespace + "/" + directoryOf(stream) + "/" }

// dayPrefix returns the prefix of the objects of a day of a stream.
func dayPrefix(namespace, stream string, day time.Time) string {
	return prefixOf(namespace, stream) + day.Format("2006/01/02/")
}

// parseSegmentName returns the ids in the name of a segment.
func parseSegmentName(name string) (first, last int64, ok bool) {
	n, err := fmt.Sscanf(name, "%d-%d"+segmentExtension, &first, &last)
	return first, last, err == nil && n == 2 && name == segmentName(first, last)
}

func segmentName(first, last int64) string {
	return fmt.Sprintf("%d-%d%s", first, last, segmentExtension)
}
