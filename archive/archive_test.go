package archive_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn/archive"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// Every kind of event is archived unchanged, at a path made of its namespace, stream and
// day; after verifying and restoring into another database it is the same, byte for
// byte.
//
// seed 003, the archive
func TestEventsComeBackByteForByte(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	streams := []string{
		"orders", "stream:user:events", "a/b", "..", ".", "../../etc", "ü ✓ 日本", "%41", "A", "CON", "manifest.json", "2026",
		strings.Repeat("ä", 127), strings.Repeat("b", 255), "__0x2f__", "trailing/", " ", `"quoted"\`,
	}
	payloads := []string{
		`{"b": 1.0, "a": 1e400, "b": 2}`, " {\n  \"lines\": true\r\n}\t", `null`, `"\ud800 \u2028 </script>"`, "\"\u2028 \x7f\"",
		sealed, `[]`, strings.Repeat(" ", 3) + `{"x": "` + strings.Repeat("long ", 10000) + `"}`,
	}
	for i := range max(len(streams), 3*len(payloads)) {
		w.Exec(`select posthorn.publish('default', 'order.placed', $1::json, $2, $3, $4, $5::json)`,
			payloads[i%len(payloads)], streams[i%len(streams)], []any{nil, "", `k"é`}[i%3], []any{nil, []string{"a", `{"b",c}`, "ü\\"}}[i/3%2],
			[]any{nil, "{ \"trace\" :\n 1}", `{"v":2}`}[i%3])
	}
	w.Exec("select posthorn.publish('default', 'order.placed', $1::json, 'orders')", sealed)
	w.Exec("select posthorn.define_namespace('shop')")
	w.Exec("select posthorn.publish('shop', 'order.placed', '{}', stream => 'orders')")
	w.archive(quick)
	w.archive(archive.Config{Namespace: "shop", SegmentAge: time.Microsecond})
	want := events(t, w.db)
	same(t, "objects", w.objects(), want)
	w.verified(len(want) - 1)

	today := time.Now().UTC().Format("2006/01/02")
	for _, path := range []string{"default/stream:user:events/", "default/%2E./", "default/a%2Fb/", "shop/orders/"} {
		if found, _ := filepath.Glob(filepath.Join(w.dir, path, "*/*/*/*-*.jsonl.zst")); len(found) == 0 {
			t.Errorf("no segment below %s on %s", path, today)
		}
	}
	manifest, _ := os.ReadFile(w.files("orders/" + today + "/manifest.json")[0])
	if !strings.Contains(string(manifest), `"key_versions":[7]`) {
		t.Errorf("the manifest does not say which keys sealed: %s", manifest)
	}

	other := worldOn(t, "file://"+w.dir, w.dir)
	for _, stream := range testworld.Column[string](w, `select distinct s.name from posthorn.events e join posthorn.streams s on s.id = e.stream_id
		where posthorn.sealed_with(e.payload) is not null`) {
		other.Exec("select posthorn.set_stream_policy('default', $1, 'confidential')", stream)
	}
	n, err := other.store.Restore(t.Context(), other.db, archive.RestoreConfig{})
	if err != nil || n != int64(len(want)) {
		t.Fatalf("restored %d: %v", n, err)
	}
	same(t, "restored", events(t, other.db), want)
	if id := testworld.Ask[int64](other, "select posthorn.publish('default', 'x')"); id != int64(len(want))+1 {
		t.Errorf("the next event has id %d", id)
	}
}

// Segments are cut by bytes, events and age, each of one stream and day, and no
// event that commits late is lost or doubled.
func TestSegmentsAreCut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("orders", 1)
	tx, err := w.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), "select posthorn.publish('default', 'late', '{}', stream => 'orders')"); err != nil {
		t.Fatal(err)
	}
	w.publish("orders", 12000)
	w.publish("payments", 10)
	w.Exec("select posthorn.cover_times(array_agg(posthorn.now() - interval '1 day' * n)) from generate_series(1, 3) n")
	w.Exec(`insert into posthorn.events (created_at, namespace_id, stream_id, type, payload)
		select posthorn.now() - interval '1 day' * n, 1, (select id from posthorn.streams where name = 'payments'), 'old', '{}'
		from generate_series(1, 3) n`)
	stop := w.run(archive.Config{SegmentBytes: 200_000, SegmentEvents: 1100, SegmentAge: time.Hour})
	w.Await("select coalesce(sum(pending_events), 0) = 13 from posthorn.archive_streams where unwritten = 0 and listed = changes and changes > 0 or pending_events > 0 and checkpoint is null")
	stop()
	for _, path := range w.segments() {
		if !strings.Contains(path, "/orders/") {
			t.Errorf("%s is not full and was written", path)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.archive(quick)
	want := events(t, w.db)
	same(t, "objects", w.objects(), want)
	report := w.verified(len(want))
	if report.Segments < 12000/1100 || report.Days != 5 {
		t.Errorf("%+v", report)
	}
	over := testworld.Ask[int](w, "select count(*)::int from posthorn.archive_segments where events > 2200 or bytes > 400000")
	if over > 0 {
		t.Errorf("%d segments are more than twice as large as they may be", over)
	}
}
