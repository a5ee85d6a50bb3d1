package listen_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/listen"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// ear is a listener that a test reads one event after another.
type ear struct {
	*listen.Listener
	w    *world
	next func() (listen.Item, error, bool)
}

// listen opens a listener that ends with the test.
func (w *world) listen(config listen.Start) *ear {
	w.T.Helper()
	ctx := await.Context(w.T)
	l, err := w.Internal().Hub.Listen(ctx, config)
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(l.Close)
	next, stop := iter.Pull2(events(ctx, l))
	w.T.Cleanup(stop)
	return &ear{l, w, next}
}

// events yields the events as they come, until ctx ends, which also closes the
// listener, or Close is called. A loop that is left gets the event again at which it
// was left.
func events(ctx context.Context, l *listen.Listener) iter.Seq2[listen.Item, error] {
	return func(yield func(listen.Item, error) bool) {
		for {
			item, err := l.Next(ctx)
			if ctx.Err() != nil {
				l.Close()
				return
			}
			if errors.Is(err, listen.ErrEnded) || !yield(item, err) || err != nil {
				return
			}
			l.Done()
		}
	}
}

// hear waits for n events; those before the last are done.
func (l *ear) hear(n int) []listen.Item {
	l.w.T.Helper()
	var heard []listen.Item
	for len(heard) < n {
		e, err, ok := l.next()
		if err != nil || !ok {
			l.w.T.Fatalf("heard %v, want %d events: %v", heardIDs(heard), n, err)
		}
		heard = append(heard, e)
	}
	return heard
}

// ids waits for n events.
func (l *ear) ids(n int) []int64 {
	l.w.T.Helper()
	return heardIDs(l.hear(n))
}

// until reads up to an event of this type.
func (l *ear) until(last string) []int64 {
	l.w.T.Helper()
	var ids []int64
	for {
		e := l.hear(1)[0]
		if e.Type == last {
			return ids
		}
		ids = append(ids, e.ID)
	}
}

// wantErr reads until the listener ends.
func (l *ear) wantErr(want error) (ids []int64) {
	l.w.T.Helper()
	for {
		e, err, ok := l.next()
		if err != nil || !ok {
			testworld.WantErr(l.w.T, "the end", err, want)
			return ids
		}
		ids = append(ids, e.ID)
	}
}

func heardIDs(heard []listen.Item) []int64 {
	var ids []int64
	for _, e := range heard {
		ids = append(ids, e.ID)
	}
	return ids
}

// publishIn publishes in a transaction of the caller.
func (w *world) publishIn(tx pgx.Tx) int64 {
	w.T.Helper()
	ids, err := w.Publish(w.T.Context(), tx, posthorn.Message{Type: "e"})
	if err != nil {
		w.T.Fatal(err)
	}
	return ids[0]
}

// Listeners start now, at a time, after an event or at a cursor. seed 001.50-59
func TestListenStarts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	before := w.PublishN(5)
	now := w.listen(listen.Start{})
	at := testworld.Ask[time.Time](w, "select created_at from posthorn.events where id = $1", before[2])
	after := w.PublishN(3)
	all := append(slices.Clone(before), after...)
	testworld.Equal(t, "from now", now.ids(3), after)
	testworld.Equal(t, "from the beginning", w.listen(listen.Start{From: posthorn.Beginning}).ids(8), all)
	testworld.Equal(t, "from a time", w.listen(listen.Start{From: posthorn.At(at)}).ids(6), all[2:])
	testworld.Equal(t, "after an event", w.listen(listen.Start{AfterEvent: before[3]}).ids(4), all[4:])
	heard := w.listen(listen.Start{From: posthorn.Beginning}).hear(8)
	for i, e := range heard[:7] {
		testworld.Equal(t, "after a cursor", w.listen(listen.Start{Cursor: e.Cursor()}).ids(7-i), all[i+1:])
	}
	reader := w.Read(posthorn.ReadConfig{})
	w.ReadIDs(reader, 0)
	fromReader := w.listen(listen.Start{Cursor: reader.Cursor()})
	more := w.PublishN(2)
	testworld.Equal(t, "after a reader's cursor", fromReader.ids(2), more)
	testworld.Equal(t, "a reader after a listener's cursor", w.ReadIDs(w.Read(posthorn.ReadConfig{Cursor: heard[6].Cursor()}), 0), append(all[7:], more...))
}

// An event that gets its id early and is committed late reaches a listener once,
// whether the commit falls before or after the listener starts, is interrupted,
// resumes or joins. seed 001.38-44
func TestListenLosesNothingThatCommitsLate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const steps = 12
	var late []pgx.Tx
	var want []int64
	for range 4 {
		tx := w.Begin()
		want = append(want, w.publishIn(tx))
		late = append(late, tx)
	}
	alone := w.listen(listen.Start{}) // keeps the shared read going
	l := w.listen(listen.Start{})
	var got []int64
	for step := range steps {
		if step%3 == 1 {
			w.Commit(late[0])
			late = late[1:]
		}
		tx := w.Begin()
		want = append(want, w.publishIn(tx), w.PublishN(1)[0])
		if step%2 == 0 {
			want = append(want, w.PublishN(1)[0])
		}
		w.Commit(tx)
		if step%4 == 3 { // in the middle, or before all of it
			heard := l.hear(1)
			got = append(got, heard[0].ID)
			l.Close()
			l = w.listen(listen.Start{Cursor: heard[0].Cursor()})
		}
	}
	posthorntest.Publish(t, w.Client, posthorn.Message{Type: "last"})
	got = append(got, l.until("last")...)
	slices.Sort(got)
	slices.Sort(want)
	testworld.Equal(t, "heard", got, want)
	sharing := alone.until("last")
	slices.Sort(sharing)
	testworld.Equal(t, "heard without interruption", sharing, want)
}

// Each listener gets the events that pass its filter, with every kind of index.
func TestListenFilters(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	messages := []posthorn.Message{
		{Type: "order.placed", Key: "1", Payload: map[string]any{"status": "new", "lines": []int{1, 2}}},
		{Type: "order.paid", Key: "1", Tags: []string{"vip", "eu"}, Payload: map[string]any{"status": "paid"}},
		{Type: "order.item.added", Key: "2", Stream: "baskets", Payload: []string{"x"}},
		{Type: "user.joined", Key: "2", Stream: "users.eu", Tags: []string{"eu"}},
		{Type: "user.joined", Stream: "users.us"},
	}
	filters := []struct {
		posthorn.Filter
		want []int
	}{
		{posthorn.Filter{}, []int{0, 1, 2, 3, 4}},
		{posthorn.Filter{Types: []string{"order.paid", "user.joined"}}, []int{1, 3, 4}},
		{posthorn.Filter{Types: []string{"order.*"}}, []int{0, 1}},
		{posthorn.Filter{Types: []string{"order.>"}}, []int{0, 1, 2}},
		{posthorn.Filter{Streams: []string{"users.*"}}, []int{3, 4}},
		{posthorn.Filter{Streams: []string{"baskets", "default"}}, []int{0, 1, 2}},
		{posthorn.Filter{Streams: []string{"default"}, Types: []string{"*.placed"}}, []int{0}},
		{posthorn.Filter{Keys: []string{"1", "2"}}, []int{0, 1, 2, 3}},
		{posthorn.Filter{Keys: []string{"2"}, Types: []string{"user.>"}}, []int{3}},
		{posthorn.Filter{TagsAny: []string{"vip", "us"}}, []int{1}},
		{posthorn.Filter{TagsAny: []string{"vip", "eu"}}, []int{1, 3}},
		{posthorn.Filter{TagsAll: []string{"vip", "eu"}}, []int{1}},
		{posthorn.Filter{Payload: map[string]string{"status": "paid"}}, []int{1}},
		{posthorn.Filter{Payload: map[string][]int{"lines": {2}}}, []int{0}},
		{posthorn.Filter{Payload: "x"}, []int{2}},
		{posthorn.Filter{Types: []string{"user.>"}, Streams: []string{"users.us"}, Payload: struct{}{}}, []int{4}},
		{posthorn.Filter{Keys: []string{"3"}}, nil},
	}
	var listeners, replaying []*ear
	for _, f := range filters {
		listeners = append(listeners, w.listen(listen.Start{Filter: listen.Filter(f.Filter)}))
	}
	var ids []int64
	for _, m := range messages {
		ids = append(ids, posthorntest.Publish(t, w.Client, m)[0])
	}
	for _, f := range filters {
		replaying = append(replaying, w.listen(listen.Start{Filter: listen.Filter(f.Filter), From: posthorn.Beginning}))
	}
	all := w.listen(listen.Start{From: posthorn.Beginning})
	posthorntest.Publish(t, w.Client, posthorn.Message{Type: "last"})
	all.until("last") // so the other queues are filled too
	for i, f := range filters {
		var want []int64
		for _, n := range f.want {
			want = append(want, ids[n])
		}
		for _, l := range []*ear{listeners[i], replaying[i]} {
			testworld.Equal(t, fmt.Sprintf("%+v", f.Filter), l.ids(len(want)), want)
		}
	}
}

// A slow listener is dropped when its queue is full, and its cursor resumes after the
// last event that fitted; the others get all events. seed 001.50-59
func TestSlowListenerIsDropped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	slow := w.listen(listen.Start{Buffer: 5})
	quick := w.listen(listen.Start{Buffer: 5})
	var ids []int64
	for range 12 { // the quick one keeps up; the slow one is stuck
		ids = append(ids, w.PublishN(1)...)
		testworld.Equal(t, "the quick one", quick.ids(1), ids[len(ids)-1:])
	}
	testworld.Equal(t, "what fitted", slow.wantErr(listen.ErrSlow), ids[:5])
	resumed := w.listen(listen.Start{Cursor: slow.Cursor()})
	testworld.Equal(t, "what it resumes with", resumed.ids(7), ids[5:])
}

// After a break out of the loop, the next loop begins with the same event.
func TestListenLoopIsLeft(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, err := w.Internal().Hub.Listen(t.Context(), listen.Start{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	start := l.Cursor()
	ids := w.PublishN(3)
	var got []int64
	for range 3 {
		for e, err := range events(t.Context(), l) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e.ID)
			if len(got)%2 == 1 {
				break
			}
		}
		if len(got) == 5 {
			break
		}
	}
	testworld.Equal(t, "heard", got, []int64{ids[0], ids[0], ids[1], ids[1], ids[2]})
	testworld.Equal(t, "from the cursor", w.listen(listen.Start{Cursor: l.Cursor()}).ids(1), ids[2:])
	testworld.Equal(t, "from the start", w.listen(listen.Start{Cursor: start}).ids(3), ids)
}

// A program that waits for the next event with a deadline goes on after the deadline;
// the events before it are then done.
func TestListenNext(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, err := w.Internal().Hub.Listen(t.Context(), listen.Start{})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	next := func(ctx context.Context) int64 {
		l.Done() // with the one before
		e, err := l.Next(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return e.ID
	}
	ids := w.PublishN(2)
	testworld.Equal(t, "first", next(t.Context()), ids[0])
	testworld.Equal(t, "from the cursor", w.listen(listen.Start{Cursor: l.Cursor()}).ids(2), ids)
	testworld.Equal(t, "second", next(t.Context()), ids[1])
	short, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	l.Done()
	if _, err := l.Next(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("nothing happens: %v", err)
	}
	more := w.PublishN(1)
	testworld.Equal(t, "from the cursor", w.listen(listen.Start{Cursor: l.Cursor()}).ids(1), more)
	testworld.Equal(t, "third", next(t.Context()), more[0])
	l.Close()
	if _, err := l.Next(t.Context()); !errors.Is(err, listen.ErrEnded) {
		t.Errorf("closed: %v", err)
	}
}

// The cursor of a listener moves on with the log though no event passes its filter.
func TestListenCursorMovesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	quiet := w.listen(listen.Start{Filter: listen.Filter{Types: []string{"rare"}}})
	w.PublishN(3)
	await.True(t, "the cursor is past what was for others", func() bool {
		return len(w.ReadIDs(w.Read(posthorn.ReadConfig{Cursor: quiet.Cursor()}), 0)) == 0
	})
	rare := posthorntest.Publish(t, w.Client, posthorn.Message{Type: "rare"})[0]
	w.PublishN(2)
	resumed := w.listen(listen.Start{Cursor: quiet.Cursor(), Filter: listen.Filter{Types: []string{"rare"}}})
	testworld.Equal(t, "resumed before it was heard", resumed.ids(1), []int64{rare})
	testworld.Equal(t, "heard", quiet.ids(1), []int64{rare})
}

// Thousands of listeners share one read of the log, on the connections that one
// of them needs. seed 001.50-59
func TestListenersShareConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	open := func() int {
		return testworld.Ask[int](w, "select count(*)::int from pg_stat_activity where datname = current_database() and application_name = 'posthorn'")
	}
	w.PublishN(20)
	first := w.listen(listen.Start{})
	w.PublishN(1)
	first.hear(1)
	const most = 1 + 5 + 1 // for this query, for the client's own statements, and for notifications
	var listeners sync.WaitGroup
	for i := range 1000 {
		config := listen.Start{Filter: listen.Filter{Keys: []string{fmt.Sprint("key ", i/2)}}}
		if i%10 == 0 {
			config.From = posthorn.Beginning // catches up first
		}
		listeners.Go(func() {
			l, err := w.Internal().Hub.Listen(t.Context(), config)
			if err != nil {
				t.Error(err)
				return
			}
			defer l.Close()
			for e, err := range events(t.Context(), l) {
				if err != nil || e.Key != config.Filter.Keys[0] {
					t.Error(e.Key, err)
				}
				return
			}
		})
	}
	for n := range 500 { // also for listeners that begin late
		posthorntest.Publish(t, w.Client, posthorn.Message{Type: "e", Key: fmt.Sprint("key ", n)})
		if now := open(); now > most {
			t.Fatalf("%d connections for 1000 listeners", now)
		}
	}
	all := make(chan struct{})
	go func() {
		defer close(all)
		listeners.Wait()
	}()
	await.True(t, "all have heard", func() bool { // those that came after their event get another
		select {
		case <-all:
			return true
		default:
		}
		for n := range 500 {
			posthorntest.Publish(t, w.Client, posthorn.Message{Type: "e", Key: fmt.Sprint("key ", n)})
		}
		return false
	})
}

func TestListenEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	byContext, err := w.Internal().Hub.Listen(t.Context(), listen.Start{})
	if err != nil {
		t.Fatal(err)
	}
	w.PublishN(2)
	for _, err := range events(ctx, byContext) {
		if err != nil {
			t.Error(err)
		}
		cancel()
	}
	for e, err := range events(t.Context(), byContext) {
		t.Error("it goes on after its context has ended", e.ID, err)
	}
	byClose := w.listen(listen.Start{})
	w.PublishN(2)
	byClose.hear(1)
	byClose.Close()
	byClose.Close()
	byClose.wantErr(nil)
	byClient, catchingUp := w.listen(listen.Start{}), w.listen(listen.Start{From: posthorn.Beginning})
	ended := make(chan error, 2)
	for _, l := range []*ear{byClient, catchingUp} {
		go func() {
			for {
				if _, err, ok := l.next(); err != nil || !ok {
					ended <- err
					return
				}
			}
		}()
	}
	w.Close()
	for range 2 {
		testworld.WantErr(t, "when the client is closed", <-ended, posthorn.ErrClosed)
	}
	_, err = w.Internal().Hub.Listen(t.Context(), listen.Start{})
	testworld.WantErr(t, "on a closed client", err, posthorn.ErrClosed)
}

func TestListenRefuses(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, test := range map[string]struct {
		config listen.Start
		want   error
	}{
		"two starts":        {listen.Start{From: posthorn.Beginning, AfterEvent: 1}, posthorn.ErrInvalid},
		"nonsense":          {listen.Start{Cursor: "nonsense"}, posthorn.ErrInvalid},
		"an unknown event":  {listen.Start{AfterEvent: 4711}, posthorn.ErrNotFound},
		"no event":          {listen.Start{AfterEvent: -1}, posthorn.ErrNotFound},
		"the future":        {listen.Start{From: posthorn.At(time.Now().Add(time.Hour))}, posthorn.ErrInvalid},
		"a negative buffer": {listen.Start{Buffer: -1}, posthorn.ErrInvalid},
		"a bad pattern":     {listen.Start{Filter: listen.Filter{Types: []string{"order*"}}}, posthorn.ErrInvalid},
		"an empty key":      {listen.Start{Filter: listen.Filter{Keys: []string{""}}}, posthorn.ErrInvalid},
		"a bad payload":     {listen.Start{Filter: listen.Filter{Payload: make(chan int)}}, posthorn.ErrInvalid},
	} {
		_, err := w.Internal().Hub.Listen(t.Context(), test.config)
		testworld.WantErr(t, name, err, test.want)
		if posthorn.Hint(err) == "" {
			t.Errorf("%s: no hint: %v", name, err)
		}
	}
	ended, end := context.WithCancel(t.Context())
	end()
	_, err := w.Internal().Hub.Listen(ended, listen.Start{})
	testworld.WantErr(t, "a context that has ended", err, context.Canceled)
}

// A listener that resumes with a cursor before the first event of the log gets an error.
func TestListenFromACursorOlderThanTheLog(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l := w.listen(listen.Start{From: posthorn.Beginning})
	w.PublishN(2)
	cursor := l.hear(1)[0].Cursor()
	l.Close()
	w.Exec("select posthorn.tend()")
	w.TurnClock(time.Hour)
	w.PublishN(1)
	w.Exec("select posthorn.tend()")
	w.TurnClock(300 * 24 * time.Hour)
	await.True(t, "retention has dropped what came after", func() bool { // a table in use waits for the next run
		w.Exec("select posthorn.maintain_events_table()")
		return testworld.Ask[bool](w, "select not exists (select from posthorn.partitions where upto < posthorn.now() - interval '200 days')")
	})
	_, err := w.Internal().Hub.Listen(t.Context(), listen.Start{Cursor: cursor})
	testworld.WantErr(t, "an old cursor", err, posthorn.ErrNotFound)
}
