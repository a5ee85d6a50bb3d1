package posthorn_test

import (
	"context"
	"net/url"
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

func TestReader(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.PublishN(25)
	r := w.Read(posthorn.ReadConfig{})
	testworld.Equal(t, "events", w.ReadIDs(r, 0), ids)
	more := w.PublishN(2)
	testworld.Equal(t, "events later", w.ReadIDs(r, 0), more)
	testworld.Equal(t, "from a cursor", w.ReadIDs(w.Read(posthorn.ReadConfig{Cursor: r.Cursor()}), 0), nil)
	testworld.Equal(t, "from the end", w.ReadIDs(w.Read(posthorn.ReadConfig{From: posthorn.End}), 0), nil)
	w.Close()
	for _, err := range r.Events(t.Context()) {
		testworld.WantErr(t, "when closed", err, posthorn.ErrClosed)
	}
}

// A loop that was left continues after its last event, and so does a reader that begins
// at the cursor.
func TestReaderGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ids := w.PublishN(25)
	for _, follow := range []bool{false, true} {
		r := w.Read(posthorn.ReadConfig{Follow: follow})
		testworld.Equal(t, "first", w.ReadIDs(r, 15), ids[:15])
		next := w.Read(posthorn.ReadConfig{Cursor: r.Cursor()})
		testworld.Equal(t, "from its cursor", w.ReadIDs(next, 0), ids[15:])
		testworld.Equal(t, "again", w.ReadIDs(r, 10), ids[15:])
	}
}

// A reader whose loop is slow scans the log by itself, and gets all events. seed 001.50-59
func TestReaderIsSlow(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.Read(posthorn.ReadConfig{Follow: true})
	var want, got []int64
	want = append(want, w.PublishN(1)...)
	for e, err := range r.Events(await.Context(t)) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e.ID)
		switch len(got) {
		case 1:
			want = append(want, w.PublishN(1)...) // the reader follows now
		case 2:
			want = append(want, w.PublishN(3000)...) // more than readBuffer
			w.Exec("select posthorn.publish('default', 'last', '{}')")
		}
		if e.Type == "last" {
			break
		}
	}
	testworld.Equal(t, "events", got[:len(got)-1], want)
}

// A reader gets only events that pass the filter; the cursor skips the others.
func TestReaderFilters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	filter := posthorn.Filter{Types: []string{"rare"}}
	ids, err := w.Publish(t.Context(), w.Pool(), posthorn.Message{Type: "e"}, posthorn.Message{Type: "rare"}, posthorn.Message{Type: "e"})
	if err != nil {
		t.Fatal(err)
	}
	r := w.Read(posthorn.ReadConfig{Filter: filter})
	testworld.Equal(t, "what passes", w.ReadIDs(r, 0), ids[1:2])
	testworld.Equal(t, "after its cursor", w.ReadIDs(w.Read(posthorn.ReadConfig{Cursor: r.Cursor()}), 0), nil)
}

// An event that commits late has a lower id than events that were read, and is read too.
func TestReaderSkipsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	tx := w.Begin()
	late, err := w.Publish(t.Context(), tx, posthorn.Message{Type: "late"})
	if err != nil {
		t.Fatal(err)
	}
	r := w.Read(posthorn.ReadConfig{Follow: true})
	ids := w.PublishN(3)
	testworld.Equal(t, "events", w.ReadIDs(r, 3), ids)
	resumed := w.Read(posthorn.ReadConfig{Cursor: r.Cursor(), Follow: true})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	testworld.Equal(t, "events later", w.ReadIDs(resumed, 1), late)
}

func TestReaderFollows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.Read(posthorn.ReadConfig{Follow: true})
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
			stop() // ends the loop without an error
			continue
		}
		want = append(want, publisher.PublishN(1)...)
	}
	testworld.Equal(t, "events", got, want)
}

func TestReaderRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, config := range []posthorn.ReadConfig{{Cursor: "nonsense"}, {From: posthorn.End, AfterEvent: 1}, {Filter: posthorn.Filter{Types: []string{"order*"}}}} {
		errs := 0
		for _, err := range w.Client.Read(config).Events(t.Context()) {
			testworld.WantErr(t, "a bad reader", err, posthorn.ErrInvalid)
			errs++
		}
		testworld.Equal(t, "errors", errs, 1)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	for _, err := range w.Read(posthorn.ReadConfig{}).Events(ended) {
		testworld.WantErr(t, "a context that has ended", err, context.Canceled)
	}
}

// A reader that follows waits for the database also before its first event.
func TestReaderBeginsDuringAnOutage(t *testing.T) {
	t.Parallel()
	near := newWorld(t)
	proxy := testpg.NewProxy(t, near.URL)
	u, err := url.Parse(near.URL)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = proxy.Address()
	far := &world{testworld.Open(t, posthorn.Config{DatabaseURL: u.String()})}
	ids := near.PublishN(1)
	proxy.Silence()
	read := make(chan []int64)
	go func() {
		defer close(read)
		read <- far.ReadIDs(far.Read(posthorn.ReadConfig{Follow: true}), 1)
	}()
	await.True(t, "the reader cannot connect", func() bool { return proxy.Unanswered() > 0 })
	proxy.Speak()
	testworld.Equal(t, "events", <-read, ids)
}
