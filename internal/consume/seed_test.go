package consume_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/internal/worker"
	"github.com/posthorn/posthorn/posthorntest"
)

// replaceTake puts a function of the test's own in the place of posthorn.take,
// which is real.take then.
func (w *world) replaceTake(body string) {
	w.T.Helper()
	w.Exec("create schema real")
	w.Exec("alter function posthorn.take set schema real")
	w.Exec(`create function posthorn.take(
		group_id bigint, node text, max_events int, lease_for interval, token uuid,
		settle_lease bigint default null, settle_attempt int default null
	) returns table (lease bigint, attempt int) language plpgsql as $$ begin ` + body + ` end $$`)
}

// recordTakes writes the arguments of each call of posthorn.take to a table, with the
// number of events that it settles and the time.
func (w *world) recordTakes() {
	w.T.Helper()
	w.Exec("create table public.takes (max_events int, lease_for interval, settled int, at timestamptz default clock_timestamp())")
	w.replaceTake(`
		declare
			settled int := (select cardinality(posthorn.lease_ids(l)) from posthorn.leases l where l.id = settle_lease);
		begin
			return query select * from real.take($1, $2, $3, $4, $5, $6, $7);
			insert into public.takes values (max_events, lease_for, settled);
		end;`)
}

// The usage example of seed 000, with its policy: a node that produces and
// consumes, all handlers of an event in one transaction, and no second attempt.
//
// seed 000.3–4, 000.23, 000.37, 000.41–42, 000.44–48, 000.52–53, 000.68
func TestAsTheSeedSystemsHadIt(t *testing.T) {
	w := newWorld(t)
	w.recordTakes()
	w.Exec("create table user_events (user_id text, event_id bigint)")
	ph := w.OpenWith(posthorn.Config{
		NodeID: "api-server-1", DisplayName: "API Server", NodeMetadata: map[string]any{"role": "producer"},
	})
	api := ph.Group("api", posthorn.GroupConfig{
		Attempts:            1,                // the first failure makes a dead letter
		SharedTx:            true,             // all handlers of an event in one transaction
		DeadLetterUnhandled: true,             // no handler: a dead letter
		LeaseFor:            30 * time.Second, // the visibility timeout
		BatchSize:           10,
		IdlePoll:            time.Second,
	})
	api.HandleTx("record", "user.created", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		_, err := tx.Exec(ctx, "insert into user_events values ($1, $2)", e.Key, e.ID)
		return err
	})
	api.HandleTx("greet", "user.created", func(_ context.Context, _ pgx.Tx, e posthorn.Event) error {
		if e.Key == "bad" {
			return errors.New("no such user")
		}
		return nil
	})
	testworld.Run(t, ph)
	w.Await("select count(*) = 2 from posthorn.node_handlers")
	if node := testworld.Ask[string](w, "select concat_ws(' ', node_id, display_name, metadata->>'role') from posthorn.nodes"); node != "api-server-1 API Server producer" {
		t.Errorf("node %q", node)
	}
	const users = 300
	posthorntest.Publish(t, ph, slices.Repeat([]posthorn.Message{{Type: "user.created", Key: "good"}}, users)...)
	odd := posthorntest.Publish(t, ph, posthorn.Message{Type: "user.created", Key: "bad"}, posthorn.Message{Type: "user.born"})
	w.Await("select count(*) = 2 from posthorn.dead_letters")
	w.settled("api")

	letters := []letter{{odd[0], "", 1, "Handler error", "no such user"}, {odd[1], "", 1, "No handler for event user.born", ""}}
	got := w.deadLetters("api")
	if len(got) == 2 && got[0].Event > got[1].Event { // two lanes, whichever was first
		got[0], got[1] = got[1], got[0]
	}
	if diff := cmp.Diff(letters, got); diff != "" {
		t.Errorf("dead letters (-want +got):\n%s", diff)
	}
	if n := testworld.Ask[int](w, "select count(*) from user_events where user_id = 'good'"); n != users {
		t.Errorf("%d effects, want %d", n, users)
	}
	if n := testworld.Ask[int](w, "select count(*) from user_events where user_id = 'bad'"); n != 0 {
		t.Error("what failed has left the effect of another handler")
	}
	// More only after an empty window; the rest of the events found then is given back.
	if asked := testworld.Ask[string](w, "select string_agg(distinct max_events || ' for ' || lease_for, ', ') from public.takes where max_events > 9 and settled is distinct from 0"); asked != "10 for 00:00:30" {
		t.Errorf("took %s", asked)
	}
	if most := testworld.Ask[int](w, "select max(max_events) from public.takes where settled is distinct from 0"); most != 10 {
		t.Errorf("took up to %d events at once, want 10", most)
	}
}

// seed 000.54, 000.65: trouble while claiming is logged, a pause is made, and
// it goes on.
func TestTroubleWhileTaking(t *testing.T) {
	w := newWorld(t)
	w.Exec("create sequence public.attempts")
	w.replaceTake("perform nextval('public.attempts'); raise exception 'the disk is on fire';")
	var log testworld.Buffer
	ph := w.OpenWith(posthorn.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	config := quick
	config.Concurrency = 1
	ph.Group("billing", config).Handle("charge", ">", func(_ context.Context, e posthorn.Event) error {
		w.say("%s", e.Type)
		return nil
	})
	posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed"})
	started := time.Now()
	testworld.Run(t, ph)
	w.Await("select last_value >= 3 from public.attempts")
	if waited := time.Since(started); waited < 2*worker.TroubleWait {
		t.Errorf("three attempts within %v, want %v between them", waited, worker.TroubleWait)
	}
	await.True(t, "it is logged", func() bool {
		return strings.Contains(log.String(), "cannot take work yet") && strings.Contains(log.String(), "the disk is on fire")
	})
	w.Exec("do $$ begin drop function posthorn.take; alter function real.take set schema posthorn; end $$")
	w.awaitLines(1)
	w.settled("billing")
}

// seed 000.38, 000.46, 002.13: without notifications, workers look for events at the
// configured interval.
func TestIdlePoll(t *testing.T) {
	w := newWorld(t)
	w.recordTakes()
	ph := w.OpenWith(posthorn.Config{})
	config := quick
	config.IdlePoll, config.Concurrency = 50*time.Millisecond, 1
	ph.Group("billing", config).Handle("charge", ">", func(context.Context, posthorn.Event) error { return nil })
	testworld.Run(t, ph)
	// Right after the start everything is news. A gap may be a little shorter than
	// the pause, which begins when the answer is here.
	w.Await(`select exists (
		select from (
			select min(gap) over (order by at rows 5 preceding) least, count(gap) over (order by at rows 5 preceding) n
			from (select at, at - lag(at) over (order by at) gap from public.takes) g
		) r
		where n = 6 and least > interval '45 ms')`)
}
