package posthorn_test

import (
	"errors"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
)

// bury makes n dead letters of group g, the last one of another type.
func (w *world) bury(g *posthorn.Group, n int) []int64 {
	w.t.Helper()
	ids := w.publish(n - 1)
	last, err := w.Publish(w.t.Context(), w.Pool(), posthorn.Message{Type: "last"})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, d := range w.fetchAll(g, n) {
		if err := d.Term(w.t.Context(), errors.New("no use")); err != nil {
			w.t.Fatal(err)
		}
	}
	return append(ids, last...)
}

func (w *world) letters(filter posthorn.DeadLetterFilter) []int64 {
	w.t.Helper()
	var events []int64
	for letter, err := range w.DeadLetters(w.t.Context(), "g", filter) {
		if err != nil {
			w.t.Fatal(err)
		}
		events = append(events, letter.EventID)
	}
	return events
}

// seed 000.56
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.bury(w.Group("g", fromBeginning()), 250)
	equal(t, "all", w.letters(posthorn.DeadLetterFilter{}), ids)
	equal(t, "the first", w.letters(posthorn.DeadLetterFilter{Limit: 120}), ids[:120])
	equal(t, "by type", w.letters(posthorn.DeadLetterFilter{Type: "last"}), ids[249:])
	equal(t, "by event", w.letters(posthorn.DeadLetterFilter{EventID: ids[7]}), ids[7:8])
	equal(t, "by error", len(w.letters(posthorn.DeadLetterFilter{Error: "no u", Reason: "Handler error"})), 250)
	equal(t, "by none of the ids", w.letters(posthorn.DeadLetterFilter{IDs: []int64{}}), nil)
	equal(t, "by subscription", w.letters(posthorn.DeadLetterFilter{Subscription: "charge"}), nil)
	later := time.Now().Add(time.Hour)
	equal(t, "from later on", w.letters(posthorn.DeadLetterFilter{FailedAfter: later}), nil)
	equal(t, "until later", len(w.letters(posthorn.DeadLetterFilter{FailedBefore: later})), 250)
	for _, err := range w.DeadLetters(t.Context(), "nobody", posthorn.DeadLetterFilter{}) {
		wantErr(t, "letters of no group", err, posthorn.ErrNotFound)
	}
}

// Each page begins where the last one ended, whatever is gone by then.
func TestDeadLettersWhilePurging(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.bury(w.Group("g", fromBeginning()), 250)
	seen := 0
	for letter, err := range w.DeadLetters(t.Context(), "g", posthorn.DeadLetterFilter{}) {
		if err != nil {
			t.Fatal(err)
		}
		seen++
		n, err := w.Purge(t.Context(), "g", posthorn.DeadLetterFilter{IDs: []int64{letter.ID}})
		if err != nil || n != 1 {
			t.Fatalf("purged %d, %v", n, err)
		}
	}
	equal(t, "seen", seen, 250)
	equal(t, "left", w.letters(posthorn.DeadLetterFilter{}), nil)
}

// seed 000.56
func TestRedrive(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	g := w.Group("g", fromBeginning())
	ids := w.bury(g, 3)
	if n, err := w.Purge(t.Context(), "g", posthorn.DeadLetterFilter{IDs: []int64{}}); n != 0 || err != nil {
		t.Errorf("purged %d by an empty list of ids, %v", n, err)
	}
	n, err := w.Redrive(t.Context(), "", posthorn.DeadLetterFilter{Type: "last"})
	if n != 1 || err != nil {
		t.Fatalf("redrove %d, %v", n, err)
	}
	again := w.fetch(g, 10)
	equal(t, "events", idsOf(again), ids[2:])
	w.ack(again...)
	equal(t, "left", w.letters(posthorn.DeadLetterFilter{}), ids[:2])
}
