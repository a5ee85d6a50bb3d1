package archive_test

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn/archive"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// Verify reports damaged, missing and forged objects, from the store alone.
//
// seed 003, the archive
func TestVerifyFindsDamage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("orders", 250)
	config := quick
	config.SegmentEvents = 100
	w.archive(config)
	if r := w.verified(250); r.Segments != 3 || r.Compared != 250 {
		t.Fatalf("before: %+v", r)
	}
	for name, c := range map[string]struct {
		damage func(w *world)
		want   string
		repair bool // listing the archive again mends it
	}{
		"a flipped byte":           {func(w *world) { flip(w, w.segments()[1]) }, "its checksum is not", false},
		"a missing segment":        {func(w *world) { remove(w, w.segments()[1]) }, "not found", false},
		"a truncated segment":      {func(w *world) { truncate(w, w.segments()[1]) }, "bytes, not", false},
		"a missing manifest":       {func(w *world) { remove(w, w.files("orders/manifest.json")[0]) }, "orders/manifest.json: not found", true},
		"a day's missing manifest": {func(w *world) { remove(w, w.dayManifest()) }, "manifest.json: not found", false},
		"a day's altered manifest": {func(w *world) { flip(w, w.dayManifest()) }, "its checksum is not", true},
		"a truncated manifest":     {func(w *world) { truncate(w, w.files("orders/manifest.json")[0]) }, "is no manifest", false},
		"a stream that was moved": {func(w *world) {
			if err := os.Rename(w.dir+"/default/orders", w.dir+"/default/other"); err != nil {
				w.T.Fatal(err)
			}
		}, "is of another stream", false},
	} {
		t.Run(name, func(t *testing.T) {
			damaged := &world{&testworld.World{Client: w.Client, T: t, URL: w.URL}, w.db, w.store, w.dir}
			if !c.repair {
				damaged.dir = t.TempDir()
				if err := os.CopyFS(damaged.dir, os.DirFS(w.dir)); err != nil {
					t.Fatal(err)
				}
				damaged.store = open(t, "file://"+damaged.dir)
			}
			c.damage(damaged)
			report := damaged.verify(archive.VerifyConfig{})
			if len(report.Problems) != 1 || !strings.Contains(report.Problems[0].Description, c.want) {
				t.Errorf("%+v", report.Problems)
			}
			if c.repair {
				damaged.Exec("select posthorn.relist_archive('default', 'archive')")
				damaged.archive(config)
				damaged.verified(250)
			}
		})
	}
}

func (w *world) dayManifest() string {
	return w.files("orders/" + time.Now().UTC().Format("2006/01/02") + "/manifest.json")[0]
}

func flip(w *world, path string) {
	content, err := os.ReadFile(path)
	if err != nil {
		w.T.Fatal(err)
	}
	content[len(content)/2] ^= 1
	if err := os.WriteFile(path, content, 0o644); err != nil {
		w.T.Fatal(err)
	}
}

func remove(w *world, path string) {
	if err := os.Remove(path); err != nil {
		w.T.Fatal(err)
	}
}

func truncate(w *world, path string) {
	info, err := os.Stat(path)
	if err == nil {
		err = os.Truncate(path, info.Size()/2)
	}
	if err != nil {
		w.T.Fatal(err)
	}
}

// Compared with the log, Verify reports missing and changed events, counts the events
// that an archiver has not written yet, and keeps to the range.
//
// seed 003, the archive
func TestVerifyAgainstTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("orders", 200)
	w.archive(quick)
	w.publish("orders", 50)
	against := archive.VerifyConfig{Range: archive.Range{Namespaces: []string{"default"}}, Log: w.db}
	if r := w.verify(against); len(r.Problems) > 0 || r.Waiting != 50 || r.Compared != 250 {
		t.Errorf("50 are not read yet: %+v", r)
	}
	stop := w.run(archive.Config{SegmentAge: time.Hour})
	w.Await("select pending_events = 50 from posthorn.archive_streams")
	stop()
	if r := w.verify(against); len(r.Problems) > 0 || r.Waiting != 50 {
		t.Errorf("50 are in parts: %+v", r)
	}
	w.Exec("delete from posthorn.archive_parts")
	r := w.verify(against)
	if len(r.Problems) != 50 || !strings.Contains(r.Problems[0].Description, "event 201 is in the log and not in the archive") {
		t.Errorf("50 are lost: %+v", r)
	}
	against.ToID = 200
	if r := w.verify(against); len(r.Problems) > 0 || r.Compared != 200 {
		t.Errorf("up to 200: %+v", r)
	}
	against.ToID, against.To = 0, testworld.Ask[time.Time](w, "select created_at from posthorn.events where id = 201")
	if r := w.verify(against); len(r.Problems) > 0 || r.Compared != 200 {
		t.Errorf("up to a time: %+v", r)
	}
	w.Exec("alter table posthorn.events disable trigger append_only")
	w.Exec(`update posthorn.events set payload = '{"n":  7}' where id = 7`)
	if r := w.verify(against); len(r.Problems) != 1 || r.Problems[0].Description != "event 7 has another payload in the log" {
		t.Errorf("one is another: %+v", r)
	}
}

// More events wait to be written than a batch has, and the log is read on one
// connection, as the command does.
func TestVerifyWithManyWaiting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.publish("orders", 10)
	w.archive(quick)
	w.publish("orders", 11_000)
	conn, err := w.db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	r := w.verify(archive.VerifyConfig{Range: archive.Range{Namespaces: []string{"default"}}, Log: conn.Conn()})
	if len(r.Problems) > 0 || r.Waiting != 11_000 || r.Compared != 11_010 {
		t.Errorf("%+v", r)
	}
}
