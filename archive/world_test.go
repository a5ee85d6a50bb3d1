package archive_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/klauspost/compress/zstd"

	"github.com/posthorn/posthorn/archive"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// world is a database and a store, with helpers of the tests.
type world struct {
	*testworld.World
	db    *pgxpool.Pool // which no client has configured
	store *archive.Store
	dir   string // where the objects are, as files
}

// newWorld has a directory as its store.
func newWorld(t *testing.T) *world {
	t.Helper()
	dir := t.TempDir()
	return worldOn(t, "file://"+dir, dir)
}

func worldOn(t *testing.T, storeURL, dir string) *world {
	t.Helper()
	w := testworld.New(t)
	return &world{w, pool(t, w.URL), open(t, storeURL), dir}
}

func pool(t *testing.T, url string) *pgxpool.Pool {
	t.Helper()
	p, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func open(t *testing.T, url string) *archive.Store {
	t.Helper()
	s, err := archive.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// quick cuts segments at once.
var quick = archive.Config{SegmentAge: time.Microsecond}

// run runs an archiver until the test ends, or stop is called.
func (w *world) run(config archive.Config) (stop func()) {
	w.T.Helper()
	config.Logger = slog.New(slog.NewTextHandler(w.T.Output(), nil))
	return testworld.Run(w.T, archive.New(w.db, w.store, config))
}

// archived waits until all visible events and their manifests are in the store.
func (w *world) archived() {
	w.T.Helper()
	w.archivedIn("default")
}

func (w *world) archivedIn(namespace string) {
	w.T.Helper()
	w.Await(`
		select coalesce(bool_and(s.lag_events = 0), false) and not exists (
			select from posthorn.archive_streams x where x.unwritten > 0 or x.listed < x.changes)
		from posthorn.archive_status s where s.namespace = $1`, namespace)
}

// archive writes all visible events.
func (w *world) archive(config archive.Config) {
	w.T.Helper()
	stop := w.run(config)
	w.archivedIn(cmp.Or(config.Namespace, "default"))
	stop()
}

// publish publishes n events to a stream, in one transaction.
func (w *world) publish(stream string, n int) {
	w.T.Helper()
	w.Exec(`
		select posthorn.publish_batch('default', array_agg('order.placed'::text), array_agg(format('{"n": %s, "pad": "%s"}', n, repeat('x', 100))::json),
			array_agg($1::text), array_agg('key ' || n % 7))
		from generate_series(1, $2::int) n`, stream, n)
}

// event has all fields of an event.
type event struct {
	Namespace, Stream, Type, Key string
	Tags                         []string
	Payload, Metadata            string
	At                           time.Time
}

const eventsSQL = `
	select e.id, n.namespace, s.name, e.type, coalesce('=' || e.key, ''), e.tags, e.payload::text, e.metadata::text, e.created_at
	from posthorn.events e
	join posthorn.namespaces n on n.id = e.namespace_id
	join posthorn.streams s on s.id = e.stream_id
	order by e.id`

// events are those of a log, by their ids.
func events(t *testing.T, db *pgxpool.Pool) map[int64]event {
	t.Helper()
	rows, err := db.Query(t.Context(), eventsSQL)
	if err != nil {
		t.Fatal(err)
	}
	all := map[int64]event{}
	var id int64
	var e event
	_, err = pgx.ForEachRow(rows, []any{&id, &e.Namespace, &e.Stream, &e.Type, &e.Key, &e.Tags, &e.Payload, &e.Metadata, &e.At}, func() error {
		if _, twice := all[id]; twice {
			t.Errorf("event %d is in the log twice", id)
		}
		all[id] = e
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// line is an event as the objects have it.
type line struct {
	ID           int64
	Stream, Type string
	Key          *string
	Tags         []string
	PublishedAt  time.Time `json:"published_at"`
	Payload      json.RawMessage
	PayloadText  *string `json:"payload_text"`
	Metadata     json.RawMessage
	MetadataText *string `json:"metadata_text"`
}

// objects reads the events in the files of a store without the package under test, and
// fails if an event occurs twice.
func (w *world) objects() map[int64]event {
	w.T.Helper()
	all := map[int64]event{}
	for _, path := range w.segments() {
		file, err := os.Open(path)
		if err != nil {
			w.T.Fatal(err)
		}
		content, err := zstd.NewReader(file)
		if err != nil {
			w.T.Fatal(err)
		}
		lines := json.NewDecoder(content)
		for {
			var l line
			if err := lines.Decode(&l); err == io.EOF {
				break
			} else if err != nil {
				w.T.Fatalf("%s: %v", path, err)
			}
			if _, twice := all[l.ID]; twice {
				w.T.Errorf("event %d is in the archive twice", l.ID)
			}
			e := event{
				Namespace: strings.Split(strings.TrimPrefix(path, w.dir), "/")[1], Stream: l.Stream, Type: l.Type, Tags: l.Tags,
				Payload: string(l.Payload), Metadata: string(l.Metadata), At: l.PublishedAt,
			}
			if l.Key != nil {
				e.Key = "=" + *l.Key
			}
			if l.PayloadText != nil {
				e.Payload = *l.PayloadText
			}
			if l.MetadataText != nil {
				e.Metadata = *l.MetadataText
			}
			if e.Metadata == "" {
				e.Metadata = "{}"
			}
			all[l.ID] = e
		}
		content.Close()
		file.Close()
	}
	return all
}

// segments are the paths of all segments in the store.
func (w *world) segments() []string { return w.files(".jsonl.zst") }

func (w *world) files(suffix string) []string {
	w.T.Helper()
	var paths []string
	err := filepath.WalkDir(w.dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, suffix) {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		w.T.Fatal(err)
	}
	return paths
}

// same compares events, and shows the first few that differ.
func same(t *testing.T, what string, got, want map[int64]event) {
	t.Helper()
	if len(got) != len(want) {
		t.Errorf("%s: %d events, want %d", what, len(got), len(want))
	}
	shown := 0
	for id, e := range want {
		opts := gocmp.Options{gocmp.Comparer(func(a, b time.Time) bool { return a.Equal(b) }), gocmp.Comparer(func(a, b []string) bool { return fmt.Sprint(a) == fmt.Sprint(b) })}
		g, there := got[id]
		if diff := gocmp.Diff(e, g, opts); !there || diff != "" {
			t.Errorf("%s: event %d (there: %v): (-want +got)\n%s", what, id, there, diff)
			if shown++; shown == 5 {
				return
			}
		}
	}
}

func (w *world) verify(config archive.VerifyConfig) archive.Report {
	w.T.Helper()
	report, err := w.store.Verify(w.T.Context(), config)
	if err != nil {
		w.T.Fatal(err)
	}
	return report
}

// verified fails unless the archive is all right and has n events.
func (w *world) verified(n int) archive.Report {
	w.T.Helper()
	report := w.verify(archive.VerifyConfig{Range: archive.Range{Namespaces: []string{"default"}}, Log: w.db})
	if len(report.Problems) > 0 || report.Events != int64(n) || report.Waiting > 0 {
		w.T.Fatalf("verified: %+v, want %d events", report, n)
	}
	return report
}
