package consume_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testchild"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// asVictim, in the environment, makes the test binary a process that handles in
// transactions, says so line by line, and is killed.
const asVictim = "POSTHORN_TEST_VICTIM"

// victimLease lasts until the test moves the clock.
const victimLease = time.Hour

func beVictim() {
	ctx := context.Background()
	ph, err := posthorn.Open(ctx, posthorn.Config{
		DatabaseURL: os.Getenv(asVictim), ApplicationName: "victim", Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	config := quick
	config.LeaseFor, config.Concurrency = victimLease, 3
	config.Attempts = posthorn.Unlimited
	ph.Group("ledger", config).HandleTx("book", "order.*", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		_, err := tx.Exec(ctx, "insert into effects (event) values ($1)", e.ID)
		fmt.Println("event", e.ID)
		return err
	})
	fmt.Println(ph.Run(ctx))
	os.Exit(0)
}

// Guarantee 2: with a transactional handler the effect happens exactly once,
// however often its process is killed while it handles.
//
// seed 000.4, 002.4
func TestEffectsHappenOnceThoughTheProcessIsKilled(t *testing.T) {
	w := newWorld(t)
	kills := await.Kills(10)
	const each = 40 // more than a process handles before it is killed
	// No unique constraint that would hide an effect which happens twice.
	w.Exec("create table effects (event bigint not null)")
	ph := w.OpenWith(posthorn.Config{})
	for range kills {
		posthorntest.Publish(t, ph, slices.Repeat([]posthorn.Message{{Type: "order.placed"}}, each)...)
		c := testchild.Start(t, "", asVictim+"="+w.URL)
		c.Prints(slices.Repeat([]string{"event"}, 1+rand.IntN(each/2))...)
		c.Kill()
		// Postgres may still run its last statement, which would extend the lease beyond the
		// moved clock.
		w.Await("select not exists (select from pg_stat_activity where datname = current_database() and application_name = 'victim')")
		posthorntest.Advance(t, ph, victimLease)
	}
	events := kills * each
	config := quick
	config.Attempts = posthorn.Unlimited
	ph.Group("ledger", config).HandleTx("book", "order.*", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		_, err := tx.Exec(ctx, "insert into effects (event) values ($1)", e.ID)
		return err
	})
	testworld.Run(t, ph)
	w.settled("ledger")
	if n := testworld.Ask[int](w, "select count(*) from effects"); n != events {
		t.Errorf("%d effects of %d events", n, events)
	}
	if n := testworld.Ask[int](w, "select count(distinct event) from effects"); n != events {
		t.Errorf("%d events of %d had an effect", n, events)
	}
}
