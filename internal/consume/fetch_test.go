package consume_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// seed 002.1, 002.2: publish, poll, finalize.
//
// seed 002.10, 002.12, 002.14
func TestFetchAndAck(t *testing.T) {
	w := newWorld(t)
	g := w.Group("g", testworld.FromBeginning())
	ids := w.PublishN(3)
	deliveries := w.Fetch(g, 10)
	testworld.Equal(t, "events", testworld.IDs(deliveries), ids)
	testworld.Equal(t, "state", w.State(ids[0]), "PROCESSING")
	var payload int
	if err := deliveries[2].Decode(&payload); err != nil || payload != 2 {
		t.Errorf("payload %d, %v", payload, err)
	}
	w.Ack(deliveries...)
	testworld.Equal(t, "state", w.State(ids[0]), "COMPLETED")
	w.Nothing(g)
	testworld.WantErr(t, "a second answer", deliveries[0].Ack(t.Context()), posthorn.ErrConflict)
	testworld.WantErr(t, "another second answer", deliveries[0].Nack(t.Context(), errors.New("no")), posthorn.ErrConflict)
}

// A waiting fetch is notified of events that plain SQL publishes, without Run.
func TestFetchWaits(t *testing.T) {
	w := newWorld(t)
	config := testworld.FromBeginning()
	config.IdlePoll = time.Hour // so it is news that wakes it
	g := w.Group("g", config)
	fetched := make(chan []*posthorn.Delivery)
	go func() { fetched <- w.Fetch(g, 10) }()
	await.True(t, "the group is there", func() bool {
		return testworld.Ask[bool](w, "select exists (select from posthorn.groups)")
	})
	conn, err := pgx.Connect(t.Context(), w.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	await.True(t, "news of an event", func() bool { // of one that was published after the watch had begun
		if _, err := conn.Exec(t.Context(), "select posthorn.publish('default', 'e')"); err != nil {
			t.Fatal(err)
		}
		select {
		case deliveries := <-fetched:
			w.Ack(deliveries...)
			return true
		default:
			return false
		}
	})
}

// seed 002.4, 002.5, 002.9: a process that dies leaves its event to others after
// the abandonment timeout, by a clock that tests can turn.
// seed 002.3, 002.6: each acquisition counts as an attempt.
//
// seed 002.7
func TestFetchAfterAbandonment(t *testing.T) {
	w, other := newWorld(t), (*world)(nil)
	other = w.other()
	config := testworld.FromBeginning()
	config.LeaseFor = time.Minute
	g, h := w.Group("g", config), other.Group("g", config)
	w.PublishN(1)
	first := w.Fetch(g, 1)[0]
	testworld.Equal(t, "delivery", first.Delivery, 1)
	w.TurnClock(50 * time.Second)
	other.Nothing(h)
	w.TurnClock(70 * time.Second)
	second := other.Fetch(h, 1)[0]
	testworld.Equal(t, "event", second.ID, first.ID)
	testworld.Equal(t, "delivery", second.Delivery, 2)
	testworld.WantErr(t, "late ack", first.Ack(t.Context()), posthorn.ErrLeaseLost)
	testworld.WantErr(t, "late extend", first.Extend(t.Context(), time.Minute), posthorn.ErrLeaseLost)
	other.Ack(second)
	testworld.Equal(t, "state", w.State(first.ID), "COMPLETED")
}

// seed 002.8: one process per event.
func TestFetchByMany(t *testing.T) {
	w := newWorld(t)
	const events = 400
	ids := w.PublishN(events)
	seen := make(chan int64, 2*events)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	for range 3 {
		process := w.other()
		g := process.Group("g", testworld.FromBeginning())
		for range 3 {
			all.Go(func() {
				for {
					deliveries, err := g.Fetch(ctx, 7)
					if err != nil {
						return // it is over
					}
					for _, d := range deliveries {
						seen <- d.ID
						if err := d.Ack(t.Context()); err != nil {
							t.Error(err)
						}
					}
				}
			})
		}
	}
	counts := map[int64]int{}
	for range ids {
		counts[await.Value(t, "an event", seen)]++
	}
	cancel()
	all.Wait()
	if len(counts) != events || len(seen) != 0 {
		t.Errorf("%d different events, and %d more", len(counts), len(seen))
	}
}

// seed 002.7: the timeout is settable, and the worker may ask for more.
//
// seed 002.15
func TestExtend(t *testing.T) {
	w := newWorld(t)
	g := w.Group("g", testworld.FromBeginning())
	w.PublishN(2)
	first := w.Fetch(g, 2)
	if err := first[1].Extend(t.Context(), 10*time.Minute); err != nil {
		t.Fatal(err)
	}
	w.TurnClock(5 * time.Minute)
	other := w.other()
	h := other.Group("g", testworld.FromBeginning())
	other.Nothing(h)
	w.TurnClock(11 * time.Minute)
	second := other.Fetch(h, 2)
	testworld.WantErr(t, "late extend", first[1].Extend(t.Context(), time.Minute), posthorn.ErrLeaseLost)
	// Once known, the others hear of it too.
	testworld.WantErr(t, "late ack", first[0].Ack(t.Context()), posthorn.ErrLeaseLost)
	other.Ack(second...)
}

// seed 002.13, 002.14, 002.15: a failed event is retried until its attempts run out.
func TestNackAndTerm(t *testing.T) {
	w := newWorld(t)
	g := w.Group("g", testworld.FromBeginning())
	ids := w.PublishN(2)
	deliveries := w.Fetch(g, 2)
	if err := deliveries[0].Nack(t.Context(), posthorn.RetryAfter(time.Hour, errors.New("busy"))); err != nil {
		t.Fatal(err)
	}
	if err := deliveries[1].Term(t.Context(), errors.New("hopeless")); err != nil {
		t.Fatal(err)
	}
	testworld.Equal(t, "states", []string{w.State(ids[0]), w.State(ids[1])}, []string{"RETRYING", "DEAD"})
	w.Nothing(g)
	w.TurnClock(61 * time.Minute)
	for attempt := 2; attempt <= 3; attempt++ {
		again := w.Fetch(g, 2)
		testworld.Equal(t, "events", testworld.IDs(again), ids[:1])
		testworld.Equal(t, "delivery", again[0].Delivery, attempt)
		if err := again[0].Nack(t.Context(), errors.New("still busy")); err != nil {
			t.Fatal(err)
		}
	}
	testworld.Equal(t, "state", w.State(ids[0]), "DEAD")
	var reasons []string
	for letter, err := range w.Admin().DeadLetters(t.Context(), admin.DeadLetterFilter{Group: "g"}) {
		if err != nil {
			t.Fatal(err)
		}
		reasons = append(reasons, letter.Error)
	}
	testworld.Equal(t, "dead letters", reasons, []string{"hopeless", "still busy"})
}

// Events that are done at the head of a lease are not repeated after a crash, although
// others of the lease are not done.
func TestAnswersAreSavedEarly(t *testing.T) {
	w := newWorld(t)
	g := w.Group("g", testworld.FromBeginning())
	ids := w.PublishN(4)
	deliveries := w.Fetch(g, 4)
	w.Ack(deliveries[0], deliveries[3])
	if err := deliveries[1].Nack(t.Context(), posthorn.RetryAfter(time.Hour, errors.New("no"))); err != nil {
		t.Fatal(err)
	}
	await.True(t, "answers are saved", func() bool { return w.State(ids[0]) == "COMPLETED" && w.State(ids[1]) == "RETRYING" })
	testworld.Equal(t, "state of what follows a gap", w.State(ids[3]), "PROCESSING")
	w.TurnClock(2 * time.Minute) // saving has not moved the deadline
	other := w.other()
	again := other.Fetch(other.Group("g", testworld.FromBeginning()), 4)
	testworld.Equal(t, "events", testworld.IDs(again), ids[2:])
	testworld.WantErr(t, "late ack", deliveries[2].Ack(t.Context()), posthorn.ErrLeaseLost)
}

// In an ordered group a failure holds back the later events, also those of its lease.
func TestNackHoldsBack(t *testing.T) {
	w := newWorld(t)
	config := testworld.FromBeginning()
	config.Order = posthorn.OrderKey
	g := w.Group("g", config)
	ids := w.PublishN(5)
	deliveries := w.Fetch(g, 5)
	testworld.Equal(t, "events", testworld.IDs(deliveries), ids)
	w.Ack(deliveries[0])
	if err := deliveries[1].Nack(t.Context(), posthorn.RetryAfter(time.Hour, errors.New("no"))); err != nil {
		t.Fatal(err)
	}
	testworld.WantErr(t, "ack of what went back", deliveries[2].Ack(t.Context()), posthorn.ErrLeaseLost)
	w.Nothing(g)
	w.TurnClock(2 * time.Hour)
	var order []int64
	var attempts []int
	for _, d := range w.FetchAll(g, 4) {
		order, attempts = append(order, d.ID), append(attempts, d.Delivery)
		w.Ack(d)
	}
	testworld.Equal(t, "order", order, ids[1:])
	testworld.Equal(t, "attempts", attempts, []int{2, 1, 1, 1})
}

// An acknowledgement that could not be saved can be repeated.
func TestAckAgainAfterTrouble(t *testing.T) {
	w := newWorld(t)
	g := w.Group("g", testworld.FromBeginning())
	ids := w.PublishN(1)
	d := w.Fetch(g, 1)[0]
	tx := w.Begin()
	if _, err := tx.Exec(t.Context(), "select from posthorn.leases for update"); err != nil {
		t.Fatal(err)
	}
	acked := make(chan error)
	go func() { acked <- d.Ack(t.Context()) }()
	w.AwaitBlocked()
	w.Exec(`select pg_terminate_backend(pid) from pg_stat_activity
		where datname = current_database() and cardinality(pg_blocking_pids(pid)) > 0`)
	if err := <-acked; err == nil || errors.Is(err, posthorn.ErrLeaseLost) {
		t.Fatalf("ack on a connection that broke: %v", err)
	}
	// Until the server knows that nobody waits any more, it would settle all the same.
	await.True(t, "the statement is cancelled", func() bool {
		return testworld.Ask[bool](w, `select not exists (select from pg_locks l join pg_stat_activity a using (pid)
			where not l.granted and a.datname = current_database())`)
	})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	w.Ack(d)
	testworld.Equal(t, "state", w.State(ids[0]), "COMPLETED")
}

// Work that is done is acknowledged, although the program was told to stop.
func TestAckAfterTheEnd(t *testing.T) {
	w := newWorld(t)
	g := w.Group("g", testworld.FromBeginning())
	ids := w.PublishN(1)
	d := w.Fetch(g, 1)[0]
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := d.Ack(ctx); err != nil {
		t.Fatal(err)
	}
	testworld.Equal(t, "state", w.State(ids[0]), "COMPLETED")
}

func TestCloseGivesBack(t *testing.T) {
	w := newWorld(t)
	ids := w.PublishN(5)
	leaving := w.other()
	deliveries := leaving.Fetch(leaving.Group("g", testworld.FromBeginning()), 5)
	leaving.Ack(deliveries[0], deliveries[2])
	leaving.Close()
	again := w.FetchAll(w.Group("g", testworld.FromBeginning()), 3)
	counts := map[int64]int{}
	for _, d := range again {
		counts[d.ID] = d.Delivery
	}
	testworld.Equal(t, "deliveries", counts, map[int64]int{ids[1]: 1, ids[3]: 1, ids[4]: 1})
	_, err := leaving.Group("h", testworld.FromBeginning()).Fetch(t.Context(), 1)
	testworld.WantErr(t, "fetch when closed", err, posthorn.ErrClosed)
}

// A fetch that waits does not keep a client from closing.
func TestCloseEndsFetch(t *testing.T) {
	w := newWorld(t)
	leaving := w.other()
	g := leaving.Group("g", testworld.FromBeginning())
	ended := make(chan error)
	for range 2 { // one waits for its turn
		go func() {
			_, err := g.Fetch(t.Context(), 1)
			ended <- err
		}()
	}
	await.True(t, "the group is there", func() bool {
		return testworld.Ask[bool](w, "select exists (select from posthorn.groups)")
	})
	leaving.Close()
	testworld.WantErr(t, "fetch", <-ended, posthorn.ErrClosed)
	testworld.WantErr(t, "fetch", <-ended, posthorn.ErrClosed)
}

// Run waits for fetched events as it does for handlers.
func TestRunWaitsForFetched(t *testing.T) {
	w := newWorld(t)
	ids := w.PublishN(1)
	g := w.Group("g", testworld.FromBeginning())
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	d := w.Fetch(g, 1)[0]
	await.True(t, "it runs", func() bool { return testworld.Ask[bool](w, "select exists (select from posthorn.nodes)") })
	stop()
	other := w.other() // which begins and ends meanwhile
	end := other.Start()
	await.True(t, "another node", func() bool {
		return testworld.Ask[bool](w, "select exists (select from posthorn.nodes where node_id = $1)", other.NodeID())
	})
	end()
	select {
	case err := <-ended:
		t.Fatalf("run has ended: %v", err)
	default:
	}
	w.Ack(d)
	if err := <-ended; err != nil {
		t.Error(err)
	}
	testworld.Equal(t, "state", w.State(ids[0]), "COMPLETED")
}

func TestFetchBesideHandlers(t *testing.T) {
	w := newWorld(t)
	const events = 300
	seen := make(chan int64, 2*events)
	g := w.Group("g", testworld.FromBeginning())
	g.Handle("h", ">", func(_ context.Context, e posthorn.Event) error {
		seen <- e.ID
		return nil
	})
	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	all.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	all.Go(func() {
		for d, err := range g.Deliveries(ctx) {
			if err != nil {
				t.Error(err)
				return
			}
			seen <- d.ID
			w.Ack(d)
		}
	})
	w.PublishN(events)
	counts := map[int64]int{}
	for range events {
		counts[await.Value(t, "an event", seen)]++
	}
	testworld.Equal(t, "different events", len(counts), events)
}

func TestFetchRefuses(t *testing.T) {
	w := newWorld(t)
	_, err := w.Group("g", testworld.FromBeginning()).Fetch(t.Context(), 0)
	testworld.WantErr(t, "fetch of none", err, posthorn.ErrInvalid)
	_, err = w.Group("bad", posthorn.GroupConfig{LeaseFor: -1}).Fetch(t.Context(), 1)
	testworld.WantErr(t, "fetch from a bad group", err, posthorn.ErrInvalid)
}

func TestDeliveriesThroughAPooler(t *testing.T) {
	t.Parallel()
	w := &world{World: testworld.Open(t, posthorn.Config{DatabaseURL: testpg.Pooler(t, posthorntest.Database(t))})}
	g := w.Group("g", testworld.FromBeginning())
	p := w.Publisher(posthorn.PublisherConfig{})
	defer p.Close()
	const events = 100
	for range events {
		if err := p.PublishAsync(t.Context(), posthorn.Message{Type: "e"}, nil); err != nil {
			t.Fatal(err)
		}
	}
	ctx := await.Context(t)
	n := 0
	for d, err := range g.Deliveries(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		w.Ack(d)
		if n++; n == events {
			break
		}
	}
	testworld.Equal(t, "events", n, events)
}

// seed 000.3, 000.28–31: publishing says where an event comes from, returns its id,
// and writes queue and log at once: they have it both, or neither.
func TestPublishedIsQueuedAndLogged(t *testing.T) {
	w := newWorld(t)
	g := w.Group("g", testworld.FromBeginning())
	publish := func(db posthorn.DB) int64 {
		t.Helper()
		ids, err := w.Publish(t.Context(), db, posthorn.Message{
			Type: "user.created", Payload: map[string]string{"user": "123"}, Metadata: map[string]any{"trace": "x"},
		})
		if err != nil || len(ids) != 1 {
			t.Fatalf("ids %v, %v", ids, err)
		}
		return ids[0]
	}
	logged := func() int { return testworld.Ask[int](w, "select count(*) from posthorn.event_log") }

	tx := w.Begin()
	publish(tx)
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	testworld.Equal(t, "log after a rollback", logged(), 0)
	w.create(g, 0)
	w.Nothing(g)

	var id int64
	if err := pgx.BeginFunc(t.Context(), w.Pool(), func(tx pgx.Tx) error { id = publish(tx); return nil }); err != nil {
		t.Fatal(err)
	}
	d := w.Fetch(g, 10)
	testworld.Equal(t, "events", testworld.IDs(d), []int64{id})
	w.Ack(d...)
	testworld.Equal(t, "log", testworld.Ask[string](w, `select concat_ws(' ', event_id = $1, namespace, event_type, payload, metadata->>'trace', producer_node_id = $2,
		emitted_at > now() - interval '1 hour') from posthorn.event_log`, id, w.NodeID()), `t default user.created {"user": "123"} x t t`)
	w.Nothing(g)
	testworld.Equal(t, "log after it was handled", logged(), 1) // events stay in the log
}
