package posthorn_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/await"
	"github.com/posthorn/posthorn/posthorntest"
)

// outcome is what a publisher tells of a message.
type outcome struct {
	id  int64
	err error
}

// collect returns a function for PublishAsync, and what it was told so far.
func collect() (done func(int64, error), told func() []outcome) {
	var mu sync.Mutex
	var all []outcome
	return func(id int64, err error) {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, outcome{id, err})
		}, func() []outcome {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(all)
		}
}

func event(payload any) posthorn.Message { return posthorn.Message{Type: "e", Payload: payload} }

// hold keeps everyone from writing events until it is released.
func (w *world) hold() (release func()) {
	w.t.Helper()
	tx := w.begin()
	if _, err := tx.Exec(w.t.Context(), "lock table posthorn.events in share row exclusive mode"); err != nil {
		w.t.Fatal(err)
	}
	return func() {
		if err := tx.Rollback(context.Background()); err != nil {
			w.t.Error(err)
		}
	}
}

// awaitWriter waits until somebody waits for a lock of somebody else's.
func (w *world) awaitWriter() {
	w.t.Helper()
	await.True(w.t, "somebody waits", func() bool {
		return ask[bool](w, `select exists (select from pg_stat_activity
			where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0)`)
	})
}

func (w *world) payloads() []string {
	w.t.Helper()
	rows, err := w.Pool().Query(w.t.Context(), "select payload::text from posthorn.events order by id")
	if err != nil {
		w.t.Fatal(err)
	}
	payloads, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		w.t.Fatal(err)
	}
	return payloads
}

func TestPublisherGathers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const callers, each = 20, 10
	p := w.Publisher(posthorn.PublisherConfig{MaxBatch: callers * each, MaxWait: time.Hour})
	defer p.Close()
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			messages := slices.Repeat([]posthorn.Message{event(caller)}, each)
			ids, err := p.Publish(t.Context(), messages...)
			if err != nil {
				t.Error(err)
			}
			got := ask[int](w, "select count(*) from posthorn.events where id = any ($1) and payload::text::int = $2", ids, caller)
			equal(t, "events of a caller", got, each)
		})
	}
	all.Wait()
	equal(t, "transactions", ask[int](w, "select count(distinct xid) from posthorn.events"), 1)
	equal(t, "events", ask[int](w, "select count(*) from posthorn.events"), callers*each)
}

func TestPublisherWaitsNoLonger(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.Publisher(posthorn.PublisherConfig{MaxWait: 20 * time.Millisecond})
	defer p.Close()
	if _, err := p.Publish(t.Context(), event(1)); err != nil {
		t.Fatal(err)
	}
	ids, err := p.Publish(t.Context())
	if ids != nil || err != nil {
		t.Errorf("publishing nothing: %v, %v", ids, err)
	}
}

// A message that is refused fails its own call, and no other of the batch.
func TestPublisherFindsTheCulprit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.Publisher(posthorn.PublisherConfig{MaxBatch: 1000, MaxWait: time.Hour})
	var told []func() []outcome
	for i := range 20 {
		m := event(i)
		switch i {
		case 5:
			m.Type = ""
		case 13:
			m.Payload = "\x00"
		}
		done, all := collect()
		told = append(told, all)
		if err := p.PublishAsync(t.Context(), m, done); err != nil {
			t.Fatal(err)
		}
	}
	p.Close()
	last := int64(0)
	for i, all := range told {
		outcomes := all()
		if len(outcomes) != 1 {
			t.Fatalf("message %d: told %v", i, outcomes)
		}
		switch o := outcomes[0]; {
		case i == 5 || i == 13:
			wantErr(t, "a bad message", o.err, posthorn.ErrInvalid)
		case o.err != nil || o.id <= last:
			t.Errorf("message %d: %+v after %d", i, o, last)
		default:
			last = o.id
		}
	}
	equal(t, "events", len(w.payloads()), 18)
}

// The messages of one call are written as a whole, or not.
func TestPublisherKeepsCallsWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.Publisher(posthorn.PublisherConfig{MaxBatch: 2})
	defer p.Close()
	_, err := p.Publish(t.Context(), event(1), event(2), posthorn.Message{})
	wantErr(t, "a call with a bad message", err, posthorn.ErrInvalid)
	if _, err := p.Publish(t.Context(), event(3), event(4), event(5)); err != nil {
		t.Fatal(err)
	}
	equal(t, "payloads", w.payloads(), []string{"3", "4", "5"})
	err = p.PublishAsync(t.Context(), event(func() {}), func(int64, error) { t.Error("told of what was never taken") })
	wantErr(t, "a payload that cannot be encoded", err, posthorn.ErrInvalid)
}

func TestPublisherHoldsBackWhenFull(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	release := w.hold()
	p := w.Publisher(posthorn.PublisherConfig{MaxPending: 2})
	done, told := collect()
	for i := range 2 {
		if err := p.PublishAsync(t.Context(), event(i), done); err != nil {
			t.Fatal(err)
		}
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	wantErr(t, "the third", p.PublishAsync(short, event(2), done), context.DeadlineExceeded)
	waiting := make(chan error)
	go func() { waiting <- p.PublishAsync(t.Context(), event(3), done) }()
	release()
	if err := <-waiting; err != nil {
		t.Error(err)
	}
	p.Close()
	equal(t, "told", len(told()), 3)
	equal(t, "payloads", w.payloads(), []string{"0", "1", "3"})
}

// Who gives up learns whether the message may be written all the same.
func TestPublisherGivesUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	release := w.hold()
	p := w.Publisher(posthorn.PublisherConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error)
	go func() {
		_, err := p.Publish(ctx, event("on its way"))
		errs <- err
	}()
	w.awaitWriter()
	gone, end := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer end()
	_, err := p.Publish(gone, event("in the queue"))
	wantErr(t, "a message in the queue", err, context.DeadlineExceeded)
	cancel()
	err = <-errs
	wantErr(t, "a message on its way", err, context.Canceled)
	if !strings.Contains(err.Error(), "may be written") {
		t.Errorf("a message on its way: %v", err)
	}
	release()
	p.Close()
	equal(t, "payloads", w.payloads(), []string{`"on its way"`})
}

func TestPublisherCloses(t *testing.T) {
	t.Parallel()
	for name, closing := range map[string]func(*posthorn.Client, *posthorn.Publisher){
		"publisher": func(_ *posthorn.Client, p *posthorn.Publisher) { p.Close(); p.Close() },
		"client":    func(c *posthorn.Client, p *posthorn.Publisher) { c.Close(); p.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			leaving := w.other()
			p := leaving.Publisher(posthorn.PublisherConfig{MaxWait: time.Hour})
			done, told := collect()
			for i := range 100 {
				if err := p.PublishAsync(t.Context(), event(i), done); err != nil {
					t.Fatal(err)
				}
			}
			closing(leaving.Client, p)
			equal(t, "told", len(told()), 100)
			equal(t, "events", len(w.payloads()), 100)
			_, err := p.Publish(t.Context(), event(0))
			wantErr(t, "publish when closed", err, posthorn.ErrClosed)
		})
	}
}

func TestPublisherOfAClosedClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Close()
	p := w.Publisher(posthorn.PublisherConfig{})
	wantErr(t, "publish", p.PublishAsync(t.Context(), event(0), nil), posthorn.ErrClosed)
	p.Close()
}

// Delayed messages, whose payloads are rewritten, leave those of others as they are.
func TestPublisherKeepsPayloads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.Publisher(posthorn.PublisherConfig{MaxWait: time.Hour})
	raw := json.RawMessage(`{"b": 1,  "a": 2}`)
	done, told := collect()
	for _, m := range []posthorn.Message{event(raw), {Type: "e", DedupKey: "once"}, {Type: "e", DedupKey: "once"}, event(raw)} {
		if err := p.PublishAsync(t.Context(), m, done); err != nil {
			t.Fatal(err)
		}
	}
	p.Close()
	equal(t, "payloads", w.payloads(), []string{string(raw), "{}", string(raw)})
	if all := told(); all[1].id != all[2].id {
		t.Errorf("ids under one dedup key: %v", all)
	}
}

// A batch that collides with others, over dedup keys for instance, is sent again.
func TestPublisherSendsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.exec(`create sequence public.collisions;
		create function collide() returns trigger language plpgsql as $$
		begin
			if nextval('public.collisions') <= 2 then
				raise exception 'deadlock detected' using errcode = '40P01';
			end if;
			return new;
		end $$;
		create trigger collide before insert on posthorn.events for each row execute function collide()`)
	p := w.Publisher(posthorn.PublisherConfig{})
	defer p.Close()
	if _, err := p.Publish(t.Context(), event(1), event(2)); err != nil {
		t.Error(err)
	}
	equal(t, "payloads", w.payloads(), []string{"1", "2"})
}

func BenchmarkPublish(b *testing.B) {
	c := openClient(b, posthorntest.Database(b))
	for b.Loop() {
		if _, err := c.Publish(b.Context(), c.Pool(), event(1)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPublisher(b *testing.B) {
	p := openClient(b, posthorntest.Database(b)).Publisher(posthorn.PublisherConfig{})
	for b.Loop() {
		err := p.PublishAsync(b.Context(), event(1), func(_ int64, err error) {
			if err != nil {
				b.Error(err)
			}
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	p.Close()
}
