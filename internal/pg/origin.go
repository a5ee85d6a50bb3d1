package pg

import (
	"bytes"
	"encoding/json"
	"time"
)

// EventOrigin is the log in which an imported event was published first, and its id there.
type EventOrigin struct {
	Log         string    `json:"log"` // identifies the log; ids are unique in it
	Namespace   string    `json:"namespace"`
	Stream      string    `json:"stream"`
	ID          int64     `json:"id"`
	PublishedAt time.Time `json:"published_at"`
}

// originHead begins the metadata of imported events only: the SQL functions refuse to
// publish it.
var originHead = []byte(`{"posthorn_origin":`)

// IsImported reports whether metadata belong to an imported event.
func IsImported(metadata []byte) bool { return bytes.HasPrefix(metadata, originHead) }

// OriginOf returns the origin in the metadata of an imported event.
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
