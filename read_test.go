package posthorn_test

import (
	"context"
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/await"
	"github.com/posthorn/posthorn/internal/testworld"
)

func TestReader(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.PublishN(25)
	r := w.Reader(posthorn.ReaderConfig{BatchSize: 10})
	testworld.Equal(t, "events", w.Read(r, 0), ids)
	more := w.PublishN(2)
	testworld.Equal(t, "events later", w.Read(r, 0), more)
	testworld.Equal(t, "from a cursor", w.Read(w.Reader(posthorn.ReaderConfig{Cursor: r.Cursor()}), 0), nil)
	testworld.Equal(t, "from the end", w.Read(w.Reader(posthorn.ReaderConfig{From: posthorn.End}), 0), nil)
	w.Close()
	for _, err := range r.Events(t.Context()) {
		testworld.WantErr(t, "when closed", err, posthorn.ErrClosed)
	}
}

// A loop that is left within a batch gets that batch again.
func TestReaderRepeatsWhatWasLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.PublishN(25)
	r := w.Reader(posthorn.ReaderConfig{BatchSize: 10})
	testworld.Equal(t, "first", w.Read(r, 15), ids[:15])
	next := w.Reader(posthorn.ReaderConfig{Cursor: r.Cursor(), BatchSize: 7})
	testworld.Equal(t, "from its cursor", w.Read(next, 0), ids[10:])
	testworld.Equal(t, "again", w.Read(r, 0), ids[10:])
}

// What commits late has a lower id than what was read, and comes all the same.
func TestReaderSkipsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tx := w.Begin()
	late, err := w.Publish(t.Context(), tx, posthorn.Message{Type: "late"})
	if err != nil {
		t.Fatal(err)
	}
	r := w.Reader(posthorn.ReaderConfig{Follow: true})
	ids := w.PublishN(3)
	testworld.Equal(t, "events", w.Read(r, 3), ids)
	resumed := w.Reader(posthorn.ReaderConfig{Cursor: r.Cursor(), Follow: true})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	testworld.Equal(t, "events later", w.Read(resumed, 4), append(late, ids...))
}

func TestReaderFollows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.Reader(posthorn.ReaderConfig{Follow: true})
	ctx, stop := context.WithCancel(await.Context(t))
	defer stop()
	publisher := w.Other()
	var want, got []int64
	want = publisher.PublishN(1)
	for e, err := range r.Events(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.ID)
		if len(got) == 10 {
			stop() // which ends the loop, without an error
			continue
		}
		want = append(want, publisher.PublishN(1)...)
	}
	testworld.Equal(t, "events", got, want)
}

func TestReaderRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, config := range []posthorn.ReaderConfig{{Cursor: "nonsense"}, {BatchSize: -1}} {
		errs := 0
		for _, err := range w.Reader(config).Events(t.Context()) {
			testworld.WantErr(t, "a bad reader", err, posthorn.ErrInvalid)
			errs++
		}
		testworld.Equal(t, "errors", errs, 1)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for _, err := range w.Reader(posthorn.ReaderConfig{}).Events(ended) {
		testworld.WantErr(t, "a context that has ended", err, context.Canceled)
	}
}
