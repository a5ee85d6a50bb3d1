package relay_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// table is a broker for tests: a table, to which events are appended.
type table struct {
	pool *pgxpool.Pool
	name string // of the writer

	mu   sync.Mutex
	fail func(posthorn.Event) error                      // refuses an event
	call func(context.Context, posthorn.SinkBatch) error // before each call
}

func (s *table) Write(ctx context.Context, batch posthorn.SinkBatch) error {
	s.mu.Lock()
	fail, call := s.fail, s.call
	s.mu.Unlock()
	if call != nil {
		if err := call(ctx, batch); err != nil {
			return err
		}
	}
	failed, blocked := posthorn.EventErrors{}, map[string]error{}
	var ids []int64
	var streams []string
	for _, e := range batch.Events {
		err := blocked[e.Stream]
		if err == nil && fail != nil {
			err = fail(e)
		}
		switch {
		case err == nil:
			ids, streams = append(ids, e.ID), append(streams, e.Stream)
			continue
		case !strings.Contains(err.Error(), "never"): // Permanent ones hold nothing back
			blocked[e.Stream] = err
		}
		failed[e.ID] = err
	}
	_, err := s.pool.Exec(ctx, `insert into taken (event, stream, writer)
		select i, t, $3 from unnest($1::bigint[], $2::text[]) with ordinality u (i, t, n) order by n`, ids, streams, s.name)
	if err != nil || len(failed) == 0 {
		return err
	}
	return failed
}

func (s *table) set(fail func(posthorn.Event) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = fail
}

func (s *table) before(call func(context.Context, posthorn.SinkBatch) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.call = call
}

// down is the call of a broker that is down.
func down(context.Context, posthorn.SinkBatch) error { return errors.New("connection refused") }

// not refuses some streams.
func not(streams ...string) func(posthorn.Event) error {
	return func(e posthorn.Event) error {
		if slices.Contains(streams, e.Stream) {
			return errors.New("no room for " + e.Stream)
		}
		return nil
	}
}

// relaying is a world with a broker.
type relaying struct {
	*world
	sink      *table
	published map[string][]int64 // by stream
}

// soon is a relay's configuration for tests.
func soon() posthorn.RelayConfig {
	return posthorn.RelayConfig{
		BatchSize: 50, IdlePoll: 20 * time.Millisecond, LeaseFor: 30 * time.Second,
		Backoff: posthorn.Backoff{From: 5 * time.Millisecond, To: 50 * time.Millisecond},
	}
}

func newRelaying(t *testing.T) *relaying {
	t.Helper()
	w := newWorld(t)
	w.Exec("create table taken (n bigserial primary key, event bigint, stream text, writer text, at timestamptz default clock_timestamp())")
	return &relaying{w, w.broker("one"), map[string][]int64{}}
}

func (w *world) broker(name string) *table { return &table{pool: w.Pool(), name: name} }

// send publishes n events to a stream, in one transaction.
func (r *relaying) send(stream string, n int) []int64 {
	r.T.Helper()
	messages := make([]posthorn.Message, n)
	for i := range messages {
		messages[i] = posthorn.Message{Type: "e", Stream: stream, Payload: i}
	}
	ids, err := r.Publish(r.T.Context(), r.Pool(), messages...)
	if err != nil {
		r.T.Fatal(err)
	}
	r.published[stream] = append(r.published[stream], ids...)
	return ids
}

// mix publishes rounds of events to some streams.
func (r *relaying) mix(rounds, each int, streams ...string) {
	r.T.Helper()
	for range rounds {
		for _, stream := range streams {
			r.send(stream, each)
		}
	}
}

// relay runs a relay in this process until the test ends, or end is called.
func (w *world) relay(config posthorn.RelayConfig, sink posthorn.Sink) (end func()) {
	w.T.Helper()
	w.Relay("out", config, sink)
	return w.Start()
}

// written are the events of each stream in the order in which they came first.
func (r *relaying) written() map[string][]int64 {
	r.T.Helper()
	rows, err := r.Pool().Query(r.T.Context(), "select stream, event from taken order by n")
	if err != nil {
		r.T.Fatal(err)
	}
	defer rows.Close()
	written, seen := map[string][]int64{}, map[int64]bool{}
	for rows.Next() {
		var stream string
		var id int64
		if err := rows.Scan(&stream, &id); err != nil {
			r.T.Fatal(err)
		}
		if !seen[id] {
			written[stream] = append(written[stream], id)
		}
		seen[id] = true
	}
	if rows.Err() != nil {
		r.T.Fatal(rows.Err())
	}
	return written
}

// awaitWritten waits until all that was published is written, and sees to it that
// each stream kept its order.
func (r *relaying) awaitWritten() {
	r.T.Helper()
	total := 0
	for _, ids := range r.published {
		total += len(ids)
	}
	await.True(r.T, fmt.Sprintf("%d events are written", total), func() bool {
		return testworld.Ask[int](r.world, "select count(distinct event) from taken") >= total
	})
	if diff := cmp.Diff(r.published, r.written()); diff != "" {
		r.T.Errorf("written is not what was published (-published +written):\n%s", diff)
	}
	await.True(r.T, "all is settled", func() bool { return r.settled("out") })
}

func (w *world) settled(relay string) bool {
	s := w.relayStatus(relay)
	return s.LagEvents == 0 && s.Leases == 0 && s.Retries == 0
}

func (w *world) relayStatus(name string) admin.RelayStatus {
	w.T.Helper()
	relays, err := w.Admin().Relays(w.T.Context())
	if err != nil {
		w.T.Fatal(err)
	}
	i := slices.IndexFunc(relays, func(s admin.RelayStatus) bool { return s.Relay == name })
	if i < 0 {
		return admin.RelayStatus{LagEvents: -1}
	}
	return relays[i]
}

// Seed 003.1, 003.2, 003.3: every published event is written, in the order of its
// stream, and once if nothing fails.
func TestRelayWritesTheLog(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	r.mix(3, 70, "a", "b", "stream:user:events")
	var batches []posthorn.SinkBatch
	var mu sync.Mutex
	r.sink.before(func(_ context.Context, b posthorn.SinkBatch) error {
		mu.Lock()
		defer mu.Unlock()
		batches = append(batches, b)
		return nil
	})
	r.relay(soon(), r.sink)
	r.mix(2, 60, "a", "b", "c")
	r.awaitWritten()
	if n := testworld.Ask[int](r.world, "select count(*) from taken"); n != 990 {
		t.Errorf("%d were written, want each of 990 once", n)
	}
	if origin := testworld.Ask[string](r.world, "select posthorn.origin()::text"); batches[0].Log != origin || batches[0].Namespace != "default" {
		t.Errorf("a batch is from %q %q", batches[0].Log, batches[0].Namespace)
	}
	if s := r.Stats()[0]; s.Group != "out" || s.Handlers[0].Events != 990 {
		t.Errorf("the relay has counted %+v", s)
	}
}

// Seed 003.1: an event whose transaction commits late is written all the same.
func TestRelaySkipsNoLateCommit(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	r.relay(soon(), r.sink)
	r.mix(1, 1, "a", "b") // else the transaction would make the streams, and others wait for it
	tx, err := r.Pool().Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
	late, err := r.Publish(t.Context(), tx, posthorn.Message{Type: "late", Stream: "a"}, posthorn.Message{Type: "late", Stream: "b"})
	if err != nil {
		t.Fatal(err)
	}
	r.send("a", 120)
	r.awaitWritten()
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.published["a"] = append(r.published["a"], late[0])
	r.published["b"] = append(r.published["b"], late[1])
	r.awaitWritten()
	if n := testworld.Ask[int](r.world, "select count(*) from posthorn.outbox_event where published_at is null"); n != 0 {
		t.Errorf("%d events look unpublished", n)
	}
	at := testworld.Ask[bool](r.world, `select (select published_at from posthorn.outbox_event where id = $1)
		>= (select at - interval '2 seconds' from taken where event = $1)`, late[0])
	if !at {
		t.Error("the late event looks published before it was")
	}
}

// A relay is for the streams that its patterns name, and passes the others over.
func TestRelayOfSomeStreams(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	config := soon()
	config.Streams = []string{"orders", "user.*"}
	r.mix(2, 30, "orders", "user.created")
	r.send("orders.eu", 10)
	r.send("other", 10)
	r.relay(config, r.sink)
	r.send("user.gone", 5)
	other := r.published["other"][0]
	delete(r.published, "orders.eu")
	delete(r.published, "other")
	r.awaitWritten()
	if !testworld.Ask[bool](r.world, "select published_at is null from posthorn.outbox_event where id = $1", other) {
		t.Error("an event looks published whose stream nobody relays")
	}
	// Another client changes the patterns, also for the leader.
	two := r.other()
	config.Streams = []string{"other"}
	two.Relay("out", config, two.broker("two"))
	two.Start()
	await.True(t, "the patterns have changed", func() bool { return slices.Equal(r.relayStatus("out").Streams, config.Streams) })
	want := r.send("other", 3)
	await.True(t, "the other stream is written", func() bool { return len(r.written()["other"]) >= 3 })
	if got := r.written()["other"]; !slices.Equal(got, want) {
		t.Errorf("written %v, want %v", got, want)
	}
}

// Seed 003.13: while the broker is down nothing is lost, and nothing is set aside.
func TestRelayWaitsForABrokerThatIsDown(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	var calls atomic.Int64
	r.sink.before(func(ctx context.Context, b posthorn.SinkBatch) error {
		calls.Add(1)
		return down(ctx, b)
	})
	r.mix(3, 40, "a", "b")
	r.relay(soon(), r.sink)
	await.True(t, "it has tried often", func() bool { return calls.Load() > 20 })
	if s := r.relayStatus("out"); s.SetAside != 0 || s.Leases == 0 || s.LagEvents != 240 || s.OldestPending.IsZero() ||
		!strings.Contains(s.Error, "connection refused") || s.FailedAt.IsZero() {
		t.Errorf("while the broker is down: %+v", s)
	}
	if n := testworld.Ask[int](r.world, "select lag_events from posthorn.group_status where group_name = 'out'"); n != 240 {
		t.Errorf("the group lags by %d", n)
	}
	r.sink.before(nil)
	r.awaitWritten()
	await.True(t, "the error is gone", func() bool { s := r.relayStatus("out"); return s.Error == "" && s.FailedAt.IsZero() })
}

// Seed 003.13: a sink that panics is one that fails, and one that does not answer is
// called off. Both are tried again.
func TestRelayTriesABrokenSinkAgain(t *testing.T) {
	t.Parallel()
	for name, breaks := range map[string]func(ctx context.Context) error{
		"panics": func(context.Context) error { panic("sink") },
		"hangs":  func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRelaying(t)
			var calls atomic.Int64
			r.sink.before(func(ctx context.Context, _ posthorn.SinkBatch) error {
				if calls.Add(1) < 3 {
					return breaks(ctx)
				}
				return nil
			})
			config := soon()
			config.Timeout = 20 * time.Millisecond
			r.send("a", 10)
			r.relay(config, r.sink)
			r.awaitWritten()
		})
	}
}

// Seed 003.3, 003.13: a refused stream does not stop the others. When the broker takes
// it again it is written in its order, with the events that were set aside, also by an
// earlier process.
func TestStuckStreamStopsNoOther(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	r.sink.set(not("b", "d"))
	end := r.relay(soon(), r.sink)
	r.mix(10, 30, "a", "b", "c", "d")
	await.True(t, "the others are written", func() bool {
		w := r.written()
		return len(w["a"]) == 300 && len(w["c"]) == 300
	})
	await.True(t, "what is stuck is set aside", func() bool {
		s := r.relayStatus("out")
		return s.StuckStreams == 2 && s.SetAside == 600
	})
	if n := testworld.Ask[int](r.world, "select count(*) from posthorn.outbox_event where published_at is null and stream_name in ('b', 'd')"); n != 600 {
		t.Errorf("%d events of stuck streams look unpublished, want 600", n)
	}
	end()
	two := r.other()
	sink := two.broker("two")
	sink.set(not("b"))
	two.relay(soon(), sink)
	r.mix(3, 30, "a", "b", "c", "d")
	await.True(t, "one is written again", func() bool { return len(r.written()["d"]) == 390 })
	sink.set(nil)
	r.mix(3, 30, "a", "b", "c", "d")
	r.awaitWritten()
}

// Streams that get stuck and free again while events flow keep their order.
func TestStreamsThatComeAndGo(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	streams := []string{"a", "b", "c", "d", "e"}
	r.relay(soon(), r.sink)
	for range 6 {
		var refused []string
		for _, s := range streams {
			if rand.IntN(3) == 0 {
				refused = append(refused, s)
			}
		}
		r.sink.set(not(refused...))
		r.mix(3, 20, streams...)
		if rand.IntN(2) == 0 {
			await.True(t, "the others are written", func() bool {
				written := r.written()
				return !slices.ContainsFunc(streams, func(s string) bool {
					return !slices.Contains(refused, s) && len(written[s]) < len(r.published[s])
				})
			})
		}
	}
	r.sink.set(nil)
	r.awaitWritten()
}

// A stream that the broker takes again does not wait for a refused stream in the
// same window: its events of that window are set aside, which they are only when the
// window is settled.
func TestStreamThatComesBackBesideARefusedOne(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	var refusals atomic.Int64
	refuse := func(streams ...string) func(e posthorn.Event) error {
		return func(e posthorn.Event) error {
			err := not(streams...)(e)
			if err != nil && e.Stream == "a" {
				refusals.Add(1)
			}
			return err
		}
	}
	r.sink.set(refuse("a", "x"))
	r.send("x", 1)
	r.send("b", 1)
	r.relay(soon(), r.sink)
	await.True(t, "stream x is set aside", func() bool { return r.relayStatus("out").SetAside == 1 })
	ids, err := r.Publish(t.Context(), r.Pool(),
		posthorn.Message{Type: "e", Stream: "x", Payload: 1}, posthorn.Message{Type: "e", Stream: "a", Payload: 1})
	if err != nil {
		t.Fatal(err)
	}
	await.True(t, "stream a was refused", func() bool { return refusals.Load() > 0 })
	r.sink.set(refuse("a"))
	await.True(t, "stream x is written", func() bool { return slices.Contains(r.written()["x"], ids[0]) })
}

// A stream that fills whole windows is set aside too, so that others behind it are
// reached.
func TestStuckStreamThatFillsWindows(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	r.sink.set(not("a", "c"))
	r.send("b", 1)
	r.send("a", 400)
	r.mix(10, 10, "a", "c")
	r.send("b", 10)
	r.relay(soon(), r.sink)
	await.True(t, "the other stream is reached", func() bool { return len(r.written()["b"]) == 11 })
	r.sink.set(nil)
	r.awaitWritten()
}

// More than MaxSetAside is not read.
func TestStuckStreamsHaveABound(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	config := soon()
	config.MaxSetAside = 200
	r.sink.set(not("b"))
	r.mix(20, 30, "a", "b")
	r.relay(config, r.sink)
	var s admin.RelayStatus
	await.True(t, "it has set aside what it may", func() bool {
		s = r.relayStatus("out")
		return s.SetAside > 150
	})
	n := len(r.written()["a"])
	r.send("a", 10)
	for range 20 { // it has had the time to read more, if it did
		s = r.relayStatus("out")
	}
	if s.SetAside > 200 || n == 600 {
		t.Errorf("%d are set aside, and %d of the other stream are written", s.SetAside, n)
	}
	r.sink.set(nil)
	r.awaitWritten()
}

// An event that the broker will never take is a dead letter, with the reason, and
// its stream goes on; redriven, it is written.
func TestRefusedEventIsADeadLetter(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	r.mix(1, 30, "a", "b")
	bad := []int64{r.published["a"][3], r.published["a"][29], r.published["b"][0]}
	r.sink.set(func(e posthorn.Event) error {
		if slices.Contains(bad, e.ID) {
			return posthorn.Permanent(errors.New("larger than ever, and never"))
		}
		return nil
	})
	r.relay(soon(), r.sink)
	await.True(t, "they are dead letters", func() bool { return r.relayStatus("out").DeadLetters == 3 })
	all := maps.Clone(r.published)
	for stream, ids := range r.published {
		r.published[stream] = slices.DeleteFunc(slices.Clone(ids), func(id int64) bool { return slices.Contains(bad, id) })
	}
	r.awaitWritten()
	if got := testworld.Ask[string](r.world, "select min(reason || ': ' || error) from posthorn.dead_letters"); got != "Refused by the broker: larger than ever, and never" {
		t.Errorf("the dead letter says %q", got)
	}
	if n := testworld.Ask[int](r.world, "select count(*) from posthorn.outbox_event where published_at is null"); n != 3 {
		t.Errorf("%d events look unpublished, want the three dead letters", n)
	}
	r.sink.set(nil)
	if n := testworld.Ask[int](r.world, "select posthorn.redrive('default', 'out')"); n != 3 {
		t.Fatalf("%d were redriven", n)
	}
	for _, id := range bad {
		stream := "a"
		if slices.Contains(all["b"], id) {
			stream = "b"
		}
		r.published[stream] = append(r.published[stream], id)
	}
	await.True(t, "they are written", func() bool {
		return testworld.Ask[int](r.world, "select count(distinct event) from taken where event = any ($1)", bad) == 3
	})
	await.True(t, "they look published", func() bool {
		return testworld.Ask[int](r.world, "select count(*) from posthorn.outbox_event where published_at is null") == 0
	})
}

// A redriven event that is refused waits by itself: neither windows nor its stream wait
// for it.
func TestRedrivenEventWaitsByItself(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	bad := r.send("a", 3)[1]
	r.sink.set(func(e posthorn.Event) error {
		if e.ID == bad {
			return posthorn.Permanent(errors.New("never"))
		}
		return nil
	})
	r.relay(soon(), r.sink)
	await.True(t, "it is a dead letter", func() bool { return r.relayStatus("out").DeadLetters == 1 })
	r.sink.set(func(e posthorn.Event) error {
		if e.ID == bad {
			return errors.New("not yet")
		}
		return nil
	})
	r.Exec("select posthorn.redrive('default', 'out')")
	await.True(t, "it was tried again", func() bool {
		return testworld.Ask[int](r.world, "select coalesce(max(attempts), 0) from posthorn.retries where error = 'not yet'") > 1
	})
	r.send("a", 100)
	await.True(t, "the stream goes on", func() bool { return len(r.written()["a"]) == 102 })
	r.sink.set(nil)
	await.True(t, "it is written", func() bool { return r.settled("out") && len(r.written()["a"]) == 103 })
}

// Seed 003.14, 003.15: of several processes exactly one leads, and when it ends the
// next does, at once.
func TestOneProcessRelays(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	var writing atomic.Int64
	alone := func(ctx context.Context, b posthorn.SinkBatch) error {
		if writing.Add(1) > 1 {
			t.Error("two processes write at once")
		}
		_, err := r.Pool().Exec(ctx, "select") // as long as a round trip takes
		writing.Add(-1)
		return err
	}
	worlds := []*world{r.world, r.other(), r.other()}
	ends := make([]func(), 3)
	for i, w := range worlds {
		sink := w.broker(fmt.Sprint(i))
		sink.before(alone)
		ends[i] = w.relay(soon(), sink)
	}
	leader := func() string {
		var leader string
		await.True(t, "somebody has written all", func() bool {
			leader = testworld.Ask[string](r.world, "select coalesce((select writer from taken order by n desc limit 1), '')")
			return leader != "" && r.settled("out")
		})
		return leader
	}
	seen := map[string]bool{}
	for range 3 {
		r.mix(4, 25, "a", "b")
		r.awaitWritten()
		l := leader()
		if n := testworld.Ask[int](r.world, "select count(distinct writer) from taken where n > coalesce((select max(n) from taken where writer <> $1), 0)", l); seen[l] || n != 1 {
			t.Errorf("%s wrote, after it had ended, or with others", l)
		}
		seen[l] = true
		ends[l[0]-'0']()
		if s := r.relayStatus("out"); s.Owner != "" && testworld.Ask[int](r.world, "select count(*) from posthorn.leads where owner is not null") > 1 {
			t.Errorf("it ended and leads still: %+v", s)
		}
	}
	if s := r.relayStatus("out"); s.Owner != "" {
		t.Errorf("all have ended, and %s leads", s.Owner)
	}
}

// Seed 003.14–16, 003.19–22: stream leases show the worker and the position of each
// stream.
func TestStreamLeases(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	r.Relay("out", soon(), r.sink)
	end := r.Start()
	r.mix(2, 30, "a", "stream:user:events")
	r.awaitWritten()
	suffix := strings.TrimPrefix(r.relayStatus("out").Owner, "supervisor-")
	type lease struct {
		Stream, Role string
		Owner        *string
		Leads        bool
		Checkpoint   *int64
		Group        string
	}
	leases := func() []lease {
		rows, err := r.Pool().Query(t.Context(), `select stream_name, role, owner_id, coalesce(lease_until > posthorn.now() and updated_at <= posthorn.now(), false), checkpoint::bigint, group_name
			from posthorn.stream_leases where namespace = 'default' and stream_name <> 'default' order by 1`)
		if err != nil {
			t.Fatal(err)
		}
		defer rows.Close()
		var all []lease
		for rows.Next() {
			var l lease
			if err := rows.Scan(&l.Stream, &l.Role, &l.Owner, &l.Leads, &l.Checkpoint, &l.Group); err != nil {
				t.Fatal(err)
			}
			all = append(all, l)
		}
		return all
	}
	var want []lease
	for _, stream := range []string{"a", "stream:user:events"} {
		owner, last := "publisher-"+stream+"-"+suffix, r.published[stream][59]
		want = append(want, lease{stream, "publisher", &owner, true, &last, "out"})
	}
	if diff := cmp.Diff(want, leases()); diff != "" {
		t.Errorf("leases (-want +got):\n%s", diff)
	}
	end()
	for _, l := range leases() {
		if l.Owner != nil {
			t.Errorf("nobody leads, and %s has %s", *l.Owner, l.Stream)
		}
	}
}

// Seed 003.4–9: when each event was written.
func TestOutboxEvents(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	r.send("a", 120)
	r.send("b", 3)
	count := func(where string) int {
		return testworld.Ask[int](r.world, "select count(*) from posthorn.outbox_event where namespace = 'default' and "+where)
	}
	if n := count("published_at is null"); n != 123 {
		t.Errorf("%d look unpublished before there is a relay", n)
	}
	hold := make(chan struct{})
	var free sync.Once
	t.Cleanup(func() { free.Do(func() { close(hold) }) })
	r.sink.before(func(ctx context.Context, b posthorn.SinkBatch) error {
		if b.Events[len(b.Events)-1].ID > r.published["a"][60] {
			select {
			case <-hold:
			case <-ctx.Done():
			}
		}
		return nil
	})
	r.relay(soon(), r.sink)
	await.True(t, "some look published", func() bool { return count("published_at is not null") == 50 })
	if n := count("published_at is null and stream_name = 'a'"); n != 70 {
		t.Errorf("%d look unpublished while they are written", n)
	}
	free.Do(func() { close(hold) })
	r.awaitWritten()
	if n := count("published_at between created_at and posthorn.now() and event_type = 'e' and metadata is not null and payload is not null"); n != 123 {
		t.Errorf("%d look published", n)
	}
	wrong := testworld.Ask[int](r.world, "select count(*) from posthorn.outbox_event o join taken t on t.event = o.id where o.published_at < t.at - interval '2 seconds'")
	if wrong != 0 {
		t.Errorf("%d look published before they were written", wrong)
	}
	// Events that a second relay has not written yet are not published.
	two := r.other()
	sink := two.broker("two")
	sink.before(down)
	two.Relay("second", soon(), sink)
	end := two.Start()
	await.True(t, "there is a second", func() bool { return count("published_at is null") == 123 })
	sink.before(nil)
	await.True(t, "both have written", func() bool { return count("published_at is null") == 0 })
	end()
}

// A relay can be paused, moved and deleted like a group.
func TestRelayIsAGroup(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	end := r.relay(soon(), r.sink)
	r.send("a", 60)
	r.awaitWritten()
	groups, err := r.Admin().Groups(t.Context())
	if err != nil || len(groups) != 1 || groups[0].Group != "out" || groups[0].LagEvents != 0 {
		t.Errorf("groups: %+v, %v", groups, err)
	}

	r.Exec("select posthorn.pause_group('default', 'out')")
	n := testworld.Ask[int](r.world, "select count(*) from taken")
	r.send("a", 10)
	second := r.other()
	second.Relay("second", soon(), second.broker("second"))
	endSecond := second.Start()
	await.True(t, "another relay has written them", func() bool { return second.settled("second") })
	endSecond()
	r.Exec("select posthorn.delete_group('default', 'second')")
	r.Exec("delete from taken where writer = 'second'")
	if lag := r.relayStatus("out").LagEvents; lag != 10 {
		t.Errorf("a paused relay goes on: lag %d", lag)
	}
	r.Exec("select posthorn.resume_group('default', 'out')")
	r.awaitWritten()

	// Moved back, it writes events again, which count as unpublished until then.
	if err := r.Admin().Seek(t.Context(), "out", posthorn.Beginning); err != nil {
		t.Fatal(err)
	}
	await.True(t, "it is written again", func() bool {
		return testworld.Ask[int](r.world, "select count(*) from taken") >= n+80 && r.settled("out")
	})
	if n := testworld.Ask[int](r.world, "select count(*) from posthorn.outbox_event where published_at is null"); n != 0 {
		t.Errorf("%d look unpublished", n)
	}
	// Moved to the end, it skips the events before. No process runs it here, because the
	// window of a running leader would still be written.
	end()
	left := r.send("a", 30)
	if err := r.Admin().Seek(t.Context(), "out", posthorn.End); err != nil {
		t.Fatal(err)
	}
	two := r.other()
	end = two.relay(soon(), two.broker("two"))
	r.send("a", 30)
	r.published["a"] = slices.DeleteFunc(r.published["a"], func(id int64) bool { return slices.Contains(left, id) })
	r.awaitWritten()
	if n := testworld.Ask[int](r.world, "select count(*) from posthorn.outbox_event where published_at is null and id = any ($1)", left); n != 30 {
		t.Errorf("%d of the 30 events that were left out look unpublished", n)
	}

	end()
	r.Exec("select posthorn.delete_group('default', 'out')")
	if n := testworld.Ask[int](r.world, "select (select count(*) from posthorn.relays) + (select count(*) from posthorn.leads) + (select count(*) from posthorn.relayed)"); n != 0 {
		t.Errorf("%d rows are left of it", n)
	}
}

// A relay that is deleted ends the programs that run it, instead of starting over.
func TestDeletedRelayEndsItsPrograms(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	r.Relay("out", soon(), r.sink)
	ended := make(chan error, 1)
	go func() { ended <- r.Run(t.Context()) }()
	r.send("a", 10)
	r.awaitWritten()
	// Its lead is renewed every ten seconds: it is fetching that notices first.
	r.Exec("select posthorn.delete_group('default', 'out')")
	r.send("a", 10)
	if err := await.Value(t, "the end of the program", ended); !errors.Is(err, posthorn.ErrNotFound) {
		t.Errorf("it ended with %v", err)
	}
}

// Nobody else gets at the events of a relay.
func TestRelayIsNobodyElses(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	end := r.relay(soon(), r.sink)
	await.True(t, "there is one", func() bool { return r.relayStatus("out").Relay == "out" })
	end()
	two := r.other()
	if _, err := two.Group("out", testworld.FromBeginning()).Fetch(t.Context(), 1); !errors.Is(err, posthorn.ErrRefused) || !strings.Contains(err.Error(), "is a relay") {
		t.Errorf("fetch: %v", err)
	}
	for _, sql := range []string{
		"select * from posthorn.claim('default', 'out', 'me')",
		"select posthorn.take(id, 'me', 10, '1 minute', gen_random_uuid()) from posthorn.groups where name = 'out'",
		"select posthorn.subscribe('default', 'out', 'all', '{}')",
		"select * from posthorn.read_next_events('out')",
		"select posthorn.define_group('default', 'out')",
	} {
		if _, err := r.Pool().Exec(t.Context(), sql); err == nil || !strings.Contains(err.Error(), "is a relay") {
			t.Errorf("%s: %v", sql, err)
		}
	}
	r.Exec("select posthorn.define_group('default', 'group')")
	three := r.other()
	three.Relay("group", soon(), r.sink)
	if err := three.Run(t.Context()); !errors.Is(err, posthorn.ErrConflict) || posthorn.Hint(err) == "" {
		t.Errorf("a relay by the name of a group: %v", err)
	}
}

func TestRelayConfigIsChecked(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for name, config := range map[string]posthorn.RelayConfig{
		"batch": {BatchSize: 10_001}, "lease": {LeaseFor: time.Millisecond}, "backoff": {Backoff: posthorn.Backoff{Factor: .5}},
		"aside": {MaxSetAside: -1}, "pattern": {Streams: []string{"a*"}}, "timeout": {Timeout: -1},
	} {
		c := testworld.OpenClient(t, posthorn.Config{DatabaseURL: w.URL})
		c.Relay("out", config, w.broker(name))
		if err := c.Run(t.Context()); !errors.Is(err, posthorn.ErrInvalid) || posthorn.Hint(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	c := testworld.OpenClient(t, posthorn.Config{DatabaseURL: w.URL})
	c.Relay("out", posthorn.RelayConfig{}, nil)
	if err := c.Run(t.Context()); !errors.Is(err, posthorn.ErrInvalid) {
		t.Errorf("without a sink: %v", err)
	}
	c = testworld.OpenClient(t, posthorn.Config{DatabaseURL: w.URL})
	c.Relay("out", soon(), w.broker(""))
	c.Relay("out", soon(), w.broker(""))
	if err := c.Run(t.Context()); !errors.Is(err, posthorn.ErrInvalid) {
		t.Errorf("twice: %v", err)
	}
}

// trimming is a sink that can be trimmed.
type trimming struct {
	*table
	mu      sync.Mutex
	trimmed map[string]int
	needed  []int64
	err     error
}

func (s *trimming) Trim(ctx context.Context, namespace, stream string, needed func(context.Context, []int64) ([]int64, error)) error {
	ids, err := needed(ctx, []int64{1, 2, 3})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.trimmed[namespace+" "+stream]++
	s.needed = ids
	return errors.Join(err, s.err)
}

func (s *trimming) of(stream string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.trimmed[stream]
}

// Streams that were written to are trimmed if the archives allow it; failures are
// retried.
func TestRelayTrims(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	r.Exec("create or replace function posthorn.unarchived(namespace text, stream text, ids bigint[]) returns setof bigint language sql stable as 'select 2::bigint'")
	sink := &trimming{table: r.sink, trimmed: map[string]int{}, err: errors.New("busy")}
	config := soon()
	config.TrimEvery = 5 * time.Millisecond
	r.mix(1, 10, "a", "b")
	r.relay(config, sink)
	r.awaitWritten()
	await.True(t, "it is tried again", func() bool { return sink.of("default a") > 2 && sink.of("default b") > 2 })
	sink.mu.Lock()
	sink.err = nil
	if !slices.Equal(sink.needed, []int64{2}) {
		t.Errorf("needed are %v", sink.needed)
	}
	sink.mu.Unlock()
	n := sink.of("default b")
	r.send("a", 10)
	m := sink.of("default a")
	await.True(t, "it is trimmed again", func() bool { return sink.of("default a") > m })
	if later := sink.of("default b"); later > n+1 {
		t.Errorf("a stream that did not move was trimmed %d times", later-n)
	}
}

// Through a pooler that gives each transaction another connection.
func TestRelayThroughAPooler(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	w := &world{testworld.Open(t, posthorn.Config{DatabaseURL: testpg.Pooler(t, r.URL) + "&default_query_exec_mode=cache_describe", Logger: slog.New(slog.DiscardHandler)})}
	r.sink.set(not("b"))
	w.relay(soon(), r.sink)
	r.mix(3, 40, "a", "b")
	await.True(t, "one is stuck", func() bool { return r.relayStatus("out").SetAside > 0 })
	r.sink.set(nil)
	r.mix(2, 40, "a", "b")
	r.awaitWritten()
}
