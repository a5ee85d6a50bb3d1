package posthorn_test

import (
	"strconv"
	"sync"
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

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
