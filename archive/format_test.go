package archive_test

import (
	"flag"
	"path/filepath"
	"testing"
	"time"

	"github.com/posthorn/posthorn/archive"
)

// The archive in testdata was written by the first version. Another one would mean another format.
var makeArchive = flag.Bool("make-archive", false, "write testdata/format1 anew")

// early are the events of that archive.
var early = map[int64]event{
	1: {
		"default", "orders", "order.placed", "=ü 7",
		[]string{"a", `b "c"`},
		`{"n":  1.0, "t": "é"}`, `{"traceparent": "00-ab"}`,
		time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC),
	},
	2: {"default", "orders", "order.paid", "", nil, "{\"n\":\n1}", "{}", time.Date(2026, 3, 1, 23, 59, 59, 0, time.UTC)},
	3: {"default", "orders", "order.paid", "=", nil, `null`, "\n{\"a\": 1}", time.Date(2026, 3, 2, 0, 0, 0, 0, time.UTC)},
	4: {"default", "größe 1", "measured", "", nil, `1`, "{}", time.Date(2026, 3, 2, 1, 0, 0, 0, time.UTC)},
	5: {"default", "patients", "admitted", "", nil, sealed, "{}", time.Date(2026, 3, 2, 2, 0, 0, 0, time.UTC)},
}

// Archives of format 1 are read for good.
func TestFormat1(t *testing.T) {
	t.Parallel()
	dir, err := filepath.Abs("testdata/format1")
	if err != nil {
		t.Fatal(err)
	}
	w := worldOn(t, "file://"+dir, dir)
	w.Exec("update posthorn.config set value = '100 years' where key = 'partition_retention_period'")
	if *makeArchive {
		w.Exec("select posthorn.cover_times(array['2026-03-01'::timestamptz])")
		for id := range int64(len(early)) {
			e := early[id+1]
			w.Exec(`insert into posthorn.events (created_at, namespace_id, stream_id, type, key, tags, payload, metadata)
				values ($1, 1, posthorn.stream_id('default', $2), $3, case when $4 <> '' then substr($4, 2) end, coalesce($5::text[], '{}'), $6::text::json, $7::text::json)`,
				e.At, e.Stream, e.Type, e.Key, e.Tags, e.Payload, e.Metadata)
		}
		w.archive(quick)
		return
	}
	same(t, "the objects", w.objects(), early)
	report := w.verify(archive.VerifyConfig{})
	if len(report.Problems) > 0 || report.Streams != 3 || report.Days != 4 || report.Events != 5 {
		t.Errorf("verified: %+v", report)
	}
	w.Exec("select posthorn.set_stream_policy('default', 'patients', 'confidential')")
	if n, err := w.store.Restore(t.Context(), w.db, archive.RestoreConfig{}); n != 5 || err != nil {
		t.Fatalf("restored %d events: %v", n, err)
	}
	same(t, "the restored log", events(t, w.db), early)
}
