package posthorn_test

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// outcome is the result of PublishAsync for one message.
type outcome struct {
	id  int64
	err error
}

// collect returns a function for PublishAsync, and a function that returns its results.
func collect() (done func(int64, error), results func() []outcome) {
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

// blockWrites blocks all writes of events until release is called.
func (w *world) blockWrites() (release func()) {
	w.T.Helper()
	tx := w.Begin()
	if _, err := tx.Exec(w.T.Context(), "lock table posthorn.events in share row exclusive mode"); err != nil {
		w.T.Fatal(err)
	}
	return func() {
		if err := tx.Rollback(context.Background()); err != nil {
			w.T.Error(err)
		}
	}
}

func (w *world) payloads() []string {
	w.T.Helper()
	return testworld.Column[string](w, "select payload::text from posthorn.events order by id")
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
			got := testworld.Ask[int](w, "select count(*) from posthorn.events where id = any ($1) and payload::text::int = $2", ids, caller)
			testworld.Equal(t, "events of a caller", got, each)
		})
	}
	all.Wait()
	testworld.Equal(t, "transactions", testworld.Ask[int](w, "select count(distinct xid) from posthorn.events"), 1)
	testworld.Equal(t, "events", testworld.Ask[int](w, "select count(*) from posthorn.events"), callers*each)
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

// A message that is refused fails its own call, and no other call of the batch.
func TestPublisherFindsTheCulprit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.Publisher(posthorn.PublisherConfig{MaxBatch: 1000, MaxWait: time.Hour})
	var results []func() []outcome
	for i := range 20 {
		m := event(i)
		switch i {
		case 5:
			m.Type = ""
		case 13:
			m.Payload = "\x00"
		}
		done, all := collect()
		results = append(results, all)
		if err := p.PublishAsync(t.Context(), m, done); err != nil {
			t.Fatal(err)
		}
	}
	p.Close()
	last := int64(0)
	for i, all := range results {
		outcomes := all()
		if len(outcomes) != 1 {
			t.Fatalf("message %d: results %v", i, outcomes)
		}
		switch o := outcomes[0]; {
		case i == 5 || i == 13:
			testworld.WantErr(t, "a bad message", o.err, posthorn.ErrInvalid)
		case o.err != nil || o.id <= last:
			t.Errorf("message %d: %+v after %d", i, o, last)
		default:
			last = o.id
		}
	}
	testworld.Equal(t, "events", len(w.payloads()), 18)
}

// All messages of one call are written, or none.
func TestPublisherKeepsCallsWhole(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.Publisher(posthorn.PublisherConfig{MaxBatch: 2})
	defer p.Close()
	_, err := p.Publish(t.Context(), event(1), event(2), posthorn.Message{})
	testworld.WantErr(t, "a call with a bad message", err, posthorn.ErrInvalid)
	if _, err := p.Publish(t.Context(), event(3), event(4), event(5)); err != nil {
		t.Fatal(err)
	}
	testworld.Equal(t, "payloads", w.payloads(), []string{"3", "4", "5"})
	err = p.PublishAsync(t.Context(), event(func() {}), func(int64, error) { t.Error("done was called") })
	testworld.WantErr(t, "a payload that cannot be encoded", err, posthorn.ErrInvalid)
}

func TestPublisherHoldsBackWhenFull(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	release := w.blockWrites()
	p := w.Publisher(posthorn.PublisherConfig{MaxPending: 2})
	done, results := collect()
	for i := range 2 {
		if err := p.PublishAsync(t.Context(), event(i), done); err != nil {
			t.Fatal(err)
		}
	}
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	testworld.WantErr(t, "the third", p.PublishAsync(short, event(2), done), context.DeadlineExceeded)
	waiting := make(chan error)
	go func() { waiting <- p.PublishAsync(t.Context(), event(3), done) }()
	release()
	if err := <-waiting; err != nil {
		t.Error(err)
	}
	p.Close()
	testworld.Equal(t, "results", len(results()), 3)
	testworld.Equal(t, "payloads", w.payloads(), []string{"0", "1", "3"})
}

// A caller whose context ends learns whether the message may still be written.
func TestPublisherGivesUp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	release := w.blockWrites()
	p := w.Publisher(posthorn.PublisherConfig{})
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error)
	go func() {
		_, err := p.Publish(ctx, event("on its way"))
		errs <- err
	}()
	w.AwaitBlocked()
	gone, end := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer end()
	_, err := p.Publish(gone, event("in the queue"))
	testworld.WantErr(t, "a message in the queue", err, context.DeadlineExceeded)
	cancel()
	err = <-errs
	testworld.WantErr(t, "a message that is being written", err, context.Canceled)
	if !strings.Contains(err.Error(), "may still be written") {
		t.Errorf("a message that is being written: %v", err)
	}
	release()
	p.Close()
	testworld.Equal(t, "payloads", w.payloads(), []string{`"on its way"`})
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
			leaving := w.Other()
			p := leaving.Publisher(posthorn.PublisherConfig{MaxWait: time.Hour})
			done, results := collect()
			for i := range 100 {
				if err := p.PublishAsync(t.Context(), event(i), done); err != nil {
					t.Fatal(err)
				}
			}
			closing(leaving.Client, p)
			testworld.Equal(t, "results", len(results()), 100)
			testworld.Equal(t, "events", len(w.payloads()), 100)
			_, err := p.Publish(t.Context(), event(0))
			testworld.WantErr(t, "publish when closed", err, posthorn.ErrClosed)
		})
	}
}

func TestPublisherOfAClosedClient(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Close()
	p := w.Publisher(posthorn.PublisherConfig{})
	testworld.WantErr(t, "publish", p.PublishAsync(t.Context(), event(0), nil), posthorn.ErrClosed)
	p.Close()
}

// Delayed messages, whose payloads are rewritten, do not change the payloads of others.
func TestPublisherKeepsPayloads(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.Publisher(posthorn.PublisherConfig{MaxWait: time.Hour})
	raw := json.RawMessage(`{"b": 1,  "a": 2}`)
	done, results := collect()
	for _, m := range []posthorn.Message{event(raw), {Type: "e", DedupKey: "once"}, {Type: "e", DedupKey: "once"}, event(raw)} {
		if err := p.PublishAsync(t.Context(), m, done); err != nil {
			t.Fatal(err)
		}
	}
	p.Close()
	testworld.Equal(t, "payloads", w.payloads(), []string{string(raw), "{}", string(raw)})
	if all := results(); all[1].id != all[2].id {
		t.Errorf("ids under one dedup key: %v", all)
	}
}

// A batch that collides with other transactions, such as over dedup keys, is sent again.
func TestPublisherSendsAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Exec(`create sequence public.collisions;
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
	testworld.Equal(t, "payloads", w.payloads(), []string{"1", "2"})
}

func BenchmarkPublish(b *testing.B) {
	c := testworld.OpenClient(b, posthorn.Config{DatabaseURL: posthorntest.Database(b)})
	for b.Loop() {
		if _, err := c.Publish(b.Context(), c.Pool(), event(1)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPublisher(b *testing.B) {
	p := testworld.OpenClient(b, posthorn.Config{DatabaseURL: posthorntest.Database(b)}).Publisher(posthorn.PublisherConfig{})
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

// stopFirstBatch makes the batch with message 0 wait, after its ids are drawn, until release
// is called. Then message 0 is refused if refuse is set.
func (w *world) stopFirstBatch(refuse bool) (release func()) {
	w.T.Helper()
	w.Exec(`create function hold_first() returns trigger language plpgsql as $$
		begin
			if new.payload::text = '0' then
				perform pg_advisory_xact_lock(7);
				if ` + strconv.FormatBool(refuse) + ` then
					raise exception 'this one is bad' using errcode = '22023';
				end if;
			end if;
			return new;
		end $$;
		create trigger hold_first before insert on posthorn.events for each row execute function hold_first()`)
	tx := w.Begin()
	if _, err := tx.Exec(w.T.Context(), "select pg_advisory_xact_lock(7)"); err != nil {
		w.T.Fatal(err)
	}
	return func() {
		if err := tx.Rollback(w.T.Context()); err != nil {
			w.T.Error(err)
		}
	}
}

// The second batch is inserted while the first one is being written, but is not committed
// before it. If the first one fails, the second is written after what is left of it.
func TestPublisherKeepsOrderOfBatches(t *testing.T) {
	t.Parallel()
	for name, refuse := range map[string]bool{"first batch late": false, "first batch refused": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			release := w.stopFirstBatch(refuse)
			p := w.Publisher(posthorn.PublisherConfig{MaxBatch: 10})
			const messages = 45
			var results []func() []outcome
			for i := range messages {
				done, all := collect()
				results = append(results, all)
				if err := p.PublishAsync(t.Context(), event(i), done); err != nil {
					t.Fatal(err)
				}
			}
			await.True(t, "the second batch is inserted", func() bool {
				return testworld.Ask[bool](w, `select exists (select from pg_stat_activity
					where datname = current_database() and state = 'idle in transaction' and query like '%publish_in_turn%')`)
			})
			testworld.Equal(t, "events before the first batch is committed", len(w.payloads()), 0)
			release()
			p.Close()

			var want []string
			last := int64(0)
			for i, all := range results {
				o := all()[0]
				if refuse && i == 0 {
					if o.err == nil {
						t.Error("message 0 was published")
					}
					continue
				}
				if o.err != nil || o.id <= last {
					t.Errorf("message %d: %+v after %d", i, o, last)
				}
				last = o.id
				want = append(want, strconv.Itoa(i))
			}
			testworld.Equal(t, "payloads by id", w.payloads(), want)
		})
	}
}

// Many batches on their way, of callers that each publish in order.
func TestPublisherKeepsOrderOfCallers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.Publisher(posthorn.PublisherConfig{MaxBatch: 7})
	const callers, each = 4, 250
	var all sync.WaitGroup
	for caller := range callers {
		all.Go(func() {
			for i := range each {
				if err := p.PublishAsync(t.Context(), event(caller*each+i), nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	p.Close()
	late := testworld.Ask[int](w, `select count(*) from (
		select payload::text::int - lag(payload::text::int) over (partition by payload::text::int / 250 order by id) as step
		from posthorn.events) s where step <> 1`)
	testworld.Equal(t, "events out of order", late, 0)
	testworld.Equal(t, "events", len(w.payloads()), callers*each)
}
