package pg

import (
	"bytes"
	"encoding/json"
	"time"
)

// EventOrigin is where an imported event was published first.
type EventOrigin struct {
	Log         string    `json:"log"` // names the log for good: ids are unique in it
	Namespace   string    `json:"namespace"`
	Stream      string    `json:"stream"`
	ID          int64     `json:"id"`
	PublishedAt time.Time `json:"published_at"`
}

// originHead begins the metadata of imported events, and of no others: publishing
// refuses it.
var originHead = []byte(`{"posthorn_origin":`)

// IsImported reports whether metadata are those of an imported event.
func IsImported(metadata []byte) bool { return bytes.HasPrefix(metadata, originHead) }

// OriginOf is the origin that the metadata of an imported event begin with.
func OriginOf(metadata []byte) (EventOrigin, bool) {
	if !IsImported(metadata) {
		return EventOrigin{}, false
	}
	var has struct {
		Origin EventOrigin `json:"posthorn_origin"`
	}
	err := json.Unmarshal(metadata, &has)
	return has.Origin, err == nil
}
