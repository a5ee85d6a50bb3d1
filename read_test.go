package posthorn_test

import (
	"context"
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/await"
)

// read reads to the end, or n events.
func (w *world) read(r *posthorn.Reader, n int) []int64 {
	w.t.Helper()
	ctx := await.Context(w.t)
	var ids []int64
	for e, err := range r.Events(ctx) {
		if err != nil {
			w.t.Fatal(err)
		}
		if ids = append(ids, e.ID); len(ids) == n {
			break
		}
	}
	return ids
}

func TestReader(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.publish(25)
	r := w.Reader(posthorn.ReaderConfig{BatchSize: 10})
	equal(t, "events", w.read(r, 0), ids)
	more := w.publish(2)
	equal(t, "events later", w.read(r, 0), more)
	equal(t, "from a cursor", w.read(w.Reader(posthorn.ReaderConfig{Cursor: r.Cursor()}), 0), nil)
	equal(t, "from the end", w.read(w.Reader(posthorn.ReaderConfig{From: posthorn.End}), 0), nil)
	w.Close()
	for _, err := range r.Events(t.Context()) {
		wantErr(t, "when closed", err, posthorn.ErrClosed)
	}
}

// A loop that is left within a batch gets that batch again.
func TestReaderRepeatsWhatWasLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.publish(25)
	r := w.Reader(posthorn.ReaderConfig{BatchSize: 10})
	equal(t, "first", w.read(r, 15), ids[:15])
	next := w.Reader(posthorn.ReaderConfig{Cursor: r.Cursor(), BatchSize: 7})
	equal(t, "from its cursor", w.read(next, 0), ids[10:])
	equal(t, "again", w.read(r, 0), ids[10:])
}

// What commits late has a lower id than what was read, and comes all the same.
func TestReaderSkipsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tx := w.begin()
	late, err := w.Publish(t.Context(), tx, posthorn.Message{Type: "late"})
	if err != nil {
		t.Fatal(err)
	}
	r := w.Reader(posthorn.ReaderConfig{Follow: true})
	ids := w.publish(3)
	equal(t, "events", w.read(r, 3), ids)
	resumed := w.Reader(posthorn.ReaderConfig{Cursor: r.Cursor(), Follow: true})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	equal(t, "events later", w.read(resumed, 4), append(late, ids...))
}

func TestReaderFollows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.Reader(posthorn.ReaderConfig{Follow: true})
	ctx, stop := context.WithCancel(await.Context(t))
	defer stop()
	publisher := w.other()
	var want, got []int64
	want = publisher.publish(1)
	for e, err := range r.Events(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.ID)
		if len(got) == 10 {
			stop() // which ends the loop, without an error
			continue
		}
		want = append(want, publisher.publish(1)...)
	}
	equal(t, "events", got, want)
}

func TestReaderRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, config := range []posthorn.ReaderConfig{{Cursor: "nonsense"}, {BatchSize: -1}} {
		errs := 0
		for _, err := range w.Reader(config).Events(t.Context()) {
			wantErr(t, "a bad reader", err, posthorn.ErrInvalid)
			errs++
		}
		equal(t, "errors", errs, 1)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for _, err := range w.Reader(posthorn.ReaderConfig{}).Events(ended) {
		wantErr(t, "a context that has ended", err, context.Canceled)
	}
}
