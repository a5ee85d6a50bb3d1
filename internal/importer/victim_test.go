package importer_test

import (
	"context"
	"fmt"
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

// With these in the environment the test binary is a process that imports,
// handles the imported events in transactions, prints a line for each, and is killed.
const (
	asVictim   = "POSTHORN_TEST_IMPORT_VICTIM"
	victimKind = "POSTHORN_TEST_IMPORT_KIND"
	victimURL  = "POSTHORN_TEST_IMPORT_URL"
)

func beVictim() {
	ctx := context.Background()
	ph, err := posthorn.Open(ctx, posthorn.Config{DatabaseURL: os.Getenv(asVictim), Logger: quiet})
	if err == nil {
		err = importAndBook(ctx, ph, os.Getenv(victimKind), os.Getenv(victimURL), func(id int64) { fmt.Println("event", id) })
	}
	fmt.Println(err)
	os.Exit(1)
}

// importAndBook imports in small batches, and books each event.
func importAndBook(ctx context.Context, ph *posthorn.Client, kind, url string, say func(id int64)) error {
	source, err := openSource(ctx, kind, url)
	if err != nil {
		return err
	}
	defer source.Close()
	ph.Import("import", posthorn.ImportConfig{BatchSize: 7}, source)
	ledger := ph.Group("ledger", posthorn.GroupConfig{Start: posthorn.Beginning, Attempts: posthorn.Unlimited, IdlePoll: 10 * time.Millisecond})
	ledger.HandleTx("book", "order.*", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		origin, _ := e.Origin()
		_, err := tx.Exec(ctx, "insert into effects (stream, event) values ($1, $2)", e.Stream, origin.ID)
		say(origin.ID)
		return err
	})
	return ph.Run(ctx)
}

// Events of a broker are imported once, and have their effects once, however often
// the process that imports and handles them is killed.
//
// Seed 003.27
func TestEffectsHappenOnceThoughTheImporterIsKilled(t *testing.T) {
	t.Parallel()
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			w, b := newWorld(t), newBroker(t, kind)
			const streams = 3
			kills := await.Kills(8)
			events := int64(20 * kills) // more than are handled before the last is killed
			// No unique constraint that would hide an effect which happens twice.
			w.Exec("create table effects (stream text not null, event bigint not null)")
			for n := range streams {
				b.write(fmt.Sprintf("orders:%d", n), 1, events)
			}
			clock := w.open()
			for range kills {
				w.kill(b, 1+rand.IntN(20))
				posthorntest.Advance(t, clock, leaseOver)
			}
			if n := testworld.Ask[int64](w, "select count(*) from effects"); n == 0 || n == streams*events {
				t.Fatalf("%d effects when the last was killed", n)
			}
			ph := w.open()
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- importAndBook(ctx, ph, kind, b.url, func(int64) {}) }()
			w.eventually("every event has its effect", func() string {
				if n := testworld.Ask[int64](w, "select count(distinct (stream, event)) from effects"); n != streams*events {
					return fmt.Sprintf("%d of %d events had an effect", n, streams*events)
				}
				return ""
			})
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if n := testworld.Ask[int64](w, "select count(*) from effects"); n != streams*events {
				t.Errorf("%d effects of %d events", n, streams*events)
			}
			for n := range streams {
				w.has(fmt.Sprintf("orders:%d", n), upTo(events)...)
			}
		})
	}
}

// leaseOver is later than the end of any lease of a process that was killed.
const leaseOver = 2 * time.Minute

// kill starts a process, and kills it when it has handled some events.
func (w *world) kill(b *broker, after int) {
	w.T.Helper()
	c := testchild.Start(w.T, "", asVictim+"="+w.URL, victimKind+"="+b.kind, victimURL+"="+b.url)
	c.Prints(slices.Repeat([]string{"event"}, after)...)
	c.Kill()
}
