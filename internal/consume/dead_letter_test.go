package consume_test

import (
	"errors"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// bury makes n dead letters of group g, the last one of another type.
func (w *world) bury(g *posthorn.Group, n int) []int64 {
	w.T.Helper()
	ids := w.PublishN(n - 1)
	last, err := w.Publish(w.T.Context(), w.Pool(), posthorn.Message{Type: "last"})
	if err != nil {
		w.T.Fatal(err)
	}
	for _, d := range w.FetchAll(g, n) {
		if err := d.Term(w.T.Context(), errors.New("no use")); err != nil {
			w.T.Fatal(err)
		}
	}
	return append(ids, last...)
}

func (w *world) letters(filter admin.DeadLetterFilter) []int64 {
	w.T.Helper()
	var events []int64
	filter.Group = "g"
	for letter, err := range w.Admin().DeadLetters(w.T.Context(), filter) {
		if err != nil {
			w.T.Fatal(err)
		}
		events = append(events, letter.EventID)
	}
	return events
}

// seed 000.56
func TestDeadLetters(t *testing.T) {
	w := newWorld(t)
	ids := w.bury(w.Group("g", testworld.FromBeginning()), 250)
	testworld.Equal(t, "all", w.letters(admin.DeadLetterFilter{}), ids)
	testworld.Equal(t, "the first", w.letters(admin.DeadLetterFilter{Limit: 120}), ids[:120])
	testworld.Equal(t, "by type", w.letters(admin.DeadLetterFilter{Type: "last"}), ids[249:])
	testworld.Equal(t, "by event", w.letters(admin.DeadLetterFilter{EventID: ids[7]}), ids[7:8])
	testworld.Equal(t, "by error", len(w.letters(admin.DeadLetterFilter{Error: "no u", Reason: "Handler error"})), 250)
	testworld.Equal(t, "by none of the ids", w.letters(admin.DeadLetterFilter{IDs: []int64{}}), nil)
	testworld.Equal(t, "by subscription", w.letters(admin.DeadLetterFilter{Subscription: "charge"}), nil)
	later := time.Now().Add(time.Hour)
	testworld.Equal(t, "from later on", w.letters(admin.DeadLetterFilter{FailedAfter: later}), nil)
	testworld.Equal(t, "until later", len(w.letters(admin.DeadLetterFilter{FailedBefore: later})), 250)
	for _, err := range w.Admin().DeadLetters(t.Context(), admin.DeadLetterFilter{Group: "nobody"}) {
		testworld.WantErr(t, "letters of no group", err, posthorn.ErrNotFound)
	}
}

// Each page begins where the last one ended, also after rows were removed.
func TestDeadLettersWhilePurging(t *testing.T) {
	w := newWorld(t)
	w.bury(w.Group("g", testworld.FromBeginning()), 250)
	seen := 0
	for letter, err := range w.Admin().DeadLetters(t.Context(), admin.DeadLetterFilter{Group: "g"}) {
		if err != nil {
			t.Fatal(err)
		}
		seen++
		n, err := w.Admin().Purge(t.Context(), admin.DeadLetterFilter{Group: "g", IDs: []int64{letter.ID}})
		if err != nil || n != 1 {
			t.Fatalf("purged %d, %v", n, err)
		}
	}
	testworld.Equal(t, "seen", seen, 250)
	testworld.Equal(t, "left", w.letters(admin.DeadLetterFilter{}), nil)
}

// seed 000.56
func TestRedrive(t *testing.T) {
	w := newWorld(t)
	g := w.Group("g", testworld.FromBeginning())
	ids := w.bury(g, 3)
	if n, err := w.Admin().Purge(t.Context(), admin.DeadLetterFilter{Group: "g", IDs: []int64{}}); n != 0 || err != nil {
		t.Errorf("purged %d by an empty list of ids, %v", n, err)
	}
	n, err := w.Admin().Redrive(t.Context(), admin.DeadLetterFilter{Type: "last"})
	if n != 1 || err != nil {
		t.Fatalf("redrove %d, %v", n, err)
	}
	again := w.Fetch(g, 10)
	testworld.Equal(t, "events", testworld.IDs(again), ids[2:])
	w.Ack(again...)
	testworld.Equal(t, "left", w.letters(admin.DeadLetterFilter{}), ids[:2])
}
