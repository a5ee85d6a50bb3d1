package archive

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"
)

const formatVersion = 1

// streamManifest is at {namespace}/{stream}/manifest.json: the days that the
// stream has.
type streamManifest struct {
	Format    int    `json:"format"`
	Archive   string `json:"archive"` // id of the archive; no other archive may write here
	Namespace string `json:"namespace"`
	Stream    string `json:"stream"`
	Days      []day  `json:"days"`
}

type day struct {
	Day      string `json:"day"`
	Segments int64  `json:"segments"`
	Events   int64  `json:"events"`
	First    int64  `json:"first"`
	Last     int64  `json:"last"`
	SHA256   string `json:"sha256"` // of the day's manifest
}

// dayManifest is at {namespace}/{stream}/{yyyy}/{mm}/{dd}/manifest.json: the
// segments of the day. Their ranges of ids may overlap, where transactions were
// late to commit; each event is in one of them.
type dayManifest struct {
	Format    int       `json:"format"`
	Archive   string    `json:"archive"`
	Namespace string    `json:"namespace"`
	Stream    string    `json:"stream"`
	Day       string    `json:"day"`
	Segments  []segment `json:"segments"`
}

type segment struct {
	Name        string    `json:"name"`
	First       int64     `json:"first"`
	Last        int64     `json:"last"`
	Events      int       `json:"events"`
	Bytes       int64     `json:"bytes"` // of payloads and metadata
	Size        int64     `json:"size"`
	SHA256      string    `json:"sha256"`
	FirstAt     time.Time `json:"first_at"`               // of the first and the last event, which is not
	LastAt      time.Time `json:"last_at"`                // always the earliest and the latest
	KeyVersions []int32   `json:"key_versions,omitempty"` // of sealed payloads
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

func render(manifest any) []byte {
	data, _ := json.Marshal(manifest) // texts, numbers and times cannot fail
	return append(data, '\n')
}

// readStream reads the manifest of a stream by its directory.
func (s *Store) readStream(ctx context.Context, namespace, directory string) (streamManifest, error) {
	var m streamManifest
	key := namespace + "/" + directory + "/" + manifestName
	data, err := s.get(ctx, key)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("%s is no manifest: %w", key, err)
	}
	switch {
	case m.Format != formatVersion:
		return m, fmt.Errorf("%s has format %d, which this version does not know", key, m.Format)
	case m.Namespace != namespace || directoryOf(m.Stream) != directory:
		return m, fmt.Errorf("%s is of another stream: %s in %s", key, m.Stream, m.Namespace)
	}
	return m, nil
}

// readDay reads the manifest of a day, and compares it with the stream's manifest.
func (s *Store) readDay(ctx context.Context, stream *streamManifest, d day) (dayManifest, error) {
	var m dayManifest
	date, err := time.Parse(time.DateOnly, d.Day)
	if err != nil {
		return m, fmt.Errorf("the manifest of stream %s has a day that is none: %q", stream.Stream, d.Day)
	}
	key := dayPrefix(stream.Namespace, stream.Stream, date) + manifestName
	data, err := s.get(ctx, key)
	if err != nil {
		return m, err
	}
	if sumOf(data) != d.SHA256 {
		return m, fmt.Errorf("%s: %w", key, errAltered)
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, fmt.Errorf("%s is no manifest: %w", key, err)
	}
	if m.Format != formatVersion || m.Archive != stream.Archive || m.Namespace != stream.Namespace || m.Stream != stream.Stream || m.Day != d.Day {
		return m, fmt.Errorf("%s is of another archive, stream or day", key)
	}
	return m, chained(d, m)
}
