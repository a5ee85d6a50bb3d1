package consume_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testchild"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// release is a version of a program whose one handler books orders, in a transaction.
type release struct {
	handler    string
	formerly   []string
	subscribed bool
}

// releases are a version and the next one, which calls the handler by another name.
func releases(subscribed bool) (old, fresh release) {
	return release{"book", nil, subscribed}, release{"book-order", []string{"book"}, subscribed}
}

// ledger registers the handler. Each third order fails at its first attempt, and fails for
// good while it is poisoned.
func (r release) ledger(ph *posthorn.Client, said func(e posthorn.Event)) {
	config := quick
	config.LeaseFor, config.Concurrency, config.BatchSize = victimLease, 3, 5
	if r.formerly != nil {
		config.Formerly = map[string][]string{r.handler: r.formerly}
	}
	ledger := ph.Group("ledger", config)
	patterns := "order.*"
	if r.subscribed {
		patterns = posthorn.Subscribed
		ledger.Subscribe(r.handler, posthorn.Subscription{Filter: posthorn.Filter{Types: []string{"order.*"}}})
	}
	ledger.HandleTx(r.handler, patterns, func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		said(e)
		var poisoned bool
		if err := tx.QueryRow(ctx, "select exists (select from poisoned where event = $1)", e.ID).Scan(&poisoned); err != nil {
			return err
		}
		switch {
		case poisoned:
			return posthorn.Permanent(errors.New("poisoned"))
		case e.ID%3 == 0 && e.Delivery == 1:
			return errors.New("at the first attempt")
		}
		_, err := tx.Exec(ctx, "insert into effects (event, handler) values ($1, $2)", e.ID, r.handler)
		return err
	})
}

// newLedger is a world whose effects have no unique constraint that would hide one that
// happens twice.
func newLedger(t *testing.T) (*world, *posthorn.Client) {
	w := newWorld(t)
	w.Exec("create table effects (event bigint not null, handler text not null)")
	w.Exec("create table poisoned (event bigint primary key)")
	return w, w.OpenWith(posthorn.Config{})
}

// start runs a release in a client of its own, and returns when it has taken part.
func (w *world) start(r release) (stop func()) {
	w.T.Helper()
	ph := w.OpenWith(posthorn.Config{})
	r.ledger(ph, func(posthorn.Event) {})
	stop = testworld.Run(w.T, ph)
	w.Await("select exists (select from posthorn.node_handlers where node_id = $1)", ph.NodeID())
	return stop
}

// orders publishes orders, some of them delayed by transactions that stay open, and commits
// those when the test ends the returned transaction.
func (w *world) orders(ph *posthorn.Client, n int) (late pgx.Tx) {
	w.T.Helper()
	late = w.Begin()
	for i := range n {
		db := posthorn.DB(w.Pool())
		if i%10 == 0 {
			db = late
		}
		if _, err := ph.Publish(w.T.Context(), db, posthorn.Message{Type: "order.placed"}); err != nil {
			w.T.Fatal(err)
		}
	}
	return late
}

// wantBooked checks that each order was booked once and is not a dead letter.
func (w *world) wantBooked() {
	w.T.Helper()
	w.settled("ledger")
	if letters := w.deadLetters("ledger"); len(letters) > 0 {
		w.T.Errorf("%d dead letters, the first is %+v", len(letters), letters[0])
	}
	orders := testworld.Ask[int](w, "select count(*) from posthorn.events where type = 'order.placed'")
	if n := testworld.Ask[int](w, "select count(*) from effects"); n != orders {
		w.T.Errorf("%d effects of %d orders", n, orders)
	}
	if n := testworld.Ask[int](w, "select count(distinct event) from effects"); n != orders {
		w.T.Errorf("%d orders of %d were booked", n, orders)
	}
}

// A rolling deploy that renames a handler: each order is booked once, under one of the
// names, and the new version ends what the old one began. Then the deploy is rolled back.
func TestRollingDeployRenamesAHandler(t *testing.T) {
	for _, subscribed := range []bool{false, true} {
		t.Run(fmt.Sprintf("subscribed=%t", subscribed), func(t *testing.T) {
			w, ph := newLedger(t)
			old, fresh := releases(subscribed)
			stops := []func(){w.start(old), w.start(old)}
			late := w.orders(ph, 200)
			w.Exec("insert into poisoned select id from posthorn.events where type = 'order.placed' and id % 5 = 0")
			stops = append(stops, w.start(fresh))
			w.Commit(w.orders(ph, 200))
			stops[0]()
			stops = append(stops, w.start(fresh), w.start(old)) // an old one starts again
			w.Commit(late)
			w.Commit(w.orders(ph, 200))
			w.settled("ledger")
			if n := testworld.Ask[int](w, "select count(distinct handler) from effects"); n != 2 {
				t.Errorf("%d versions have booked, want both", n)
			}
			w.Exec("select posthorn.sweep_former_names()") // for settlements that were under way
			if names := testworld.Ask[string](w, "select coalesce(string_agg(distinct subscription, ' '), '') from posthorn.dead_letters"); names != "" && names != "book-order" {
				t.Errorf("dead letters of %q", names)
			}
			stops[1]()
			stops[4]()
			w.Exec("delete from poisoned")
			w.Exec("select posthorn.redrive('default', 'ledger')")
			w.wantBooked()

			// Back to the old version, which takes over what the new one leaves.
			w.Exec("insert into poisoned select g from generate_series(1, 50) i, lateral (select max(id) + i from posthorn.events) m (g)")
			w.Commit(w.orders(ph, 50))
			w.settled("ledger")
			stops[2]()
			stops[3]()
			w.Exec("delete from poisoned")
			w.Exec("select posthorn.redrive('default', 'ledger')")
			w.start(old)
			w.wantBooked()
		})
	}
}

// asRelease, in the environment beside asVictim, is the handler of the process that is
// killed, and its former names.
const asRelease = "POSTHORN_TEST_RELEASE"

func beRelease() {
	ctx := context.Background()
	ph, err := posthorn.Open(ctx, posthorn.Config{
		DatabaseURL: os.Getenv(asVictim), ApplicationName: "victim", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	handler, formerly, _ := strings.Cut(os.Getenv(asRelease), " ")
	r := release{handler: handler, subscribed: true}
	if formerly != "" {
		r.formerly = []string{formerly}
	}
	r.ledger(ph, func(e posthorn.Event) { fmt.Println("event", e.ID) })
	fmt.Println(ph.Run(ctx))
	os.Exit(0)
}

// Processes of both versions are killed while they book.
func TestRenamedHandlerBooksOnceThoughProcessesAreKilled(t *testing.T) {
	w, ph := newLedger(t)
	old, fresh := releases(true)
	old.formerly = []string{} // an empty list: as without
	kills := await.Kills(6)
	for i := range kills {
		late := w.orders(ph, 60)
		var both sync.WaitGroup
		for _, as := range []string{old.handler, fresh.handler + " " + fresh.formerly[0]} {
			if i == 0 && as != old.handler {
				continue
			}
			both.Go(func() { w.killed(as, 1+rand.IntN(10)) })
		}
		both.Wait()
		w.Commit(late)
		w.Await("select not exists (select from pg_stat_activity where datname = current_database() and application_name = 'victim')")
		posthorntest.Advance(t, ph, victimLease)
	}
	w.start(fresh)
	w.Await(`select exists (select from posthorn.group_status where group_name = 'ledger' and lag_events = 0)`)
	posthorntest.Advance(t, ph, victimLease)
	w.settled("ledger")
	w.Exec("select posthorn.redrive('default', 'ledger')") // of events whose processes were killed five times
	w.wantBooked()
	if names := testworld.Ask[int](w, "select count(*) from posthorn.subscriptions"); names != 1 {
		t.Errorf("%d subscriptions, want one", names)
	}
}

// killed runs a process of a release, and kills it when it has begun with some events. There
// must be so many that another process leaves it some.
func (w *world) killed(as string, events int) {
	c := testchild.Start(w.T, "", asVictim+"="+w.URL, asRelease+"="+as)
	c.Prints(slices.Repeat([]string{"event"}, events)...)
	c.Kill()
}
