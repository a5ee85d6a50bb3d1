package importer_test

import (
	"context"
	"log"
	"log/slog"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/testguide"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/relay/redis"
)

// The code of docs/import.md.
func importOrders(ctx context.Context, ph *posthorn.Client, brokerURL string) {
	source, err := redis.OpenSource(ctx, brokerURL, redis.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer source.Close()
	ph.Import("shop", posthorn.ImportConfig{Streams: []string{"orders", "user.*"}}, source)
	ledger := ph.Group("ledger", posthorn.GroupConfig{Start: posthorn.Beginning})
	ledger.HandleTx("book", "order.*", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		origin, _ := e.Origin()
		_, err := tx.Exec(ctx, "insert into effects (stream, event) values ($1, $2)", origin.Stream, origin.ID)
		return err
	})
	if err := ph.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

func showImports(ctx context.Context, ph *posthorn.Client) {
	imports, err := ph.Admin().Imports(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, i := range imports {
		slog.Info(i.Import, "leader", i.Owner, "imported", i.Imported, "lag", i.LagEvents, "looked", i.LookedAt, "error", i.Error)
	}
}

func TestTheGuide(t *testing.T) {
	t.Parallel()
	w, b := newWorld(t), newBroker(t, "redis")
	user := testguide.NewUser(t, w.URL)
	user.Own("create table effects (stream text not null, event bigint not null)")
	b.write("orders", 1, 3)
	b.write("user.created", 1, 3)
	b.write("others", 1, 3)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	ended := make(chan struct{})
	ph := testworld.OpenClient(t, posthorn.Config{DatabaseURL: user.With(testguide.Examples(t, "../../docs/import.md")[0].Needs)})
	go func() {
		defer close(ended)
		importOrders(ctx, ph, b.url)
	}()
	w.eventually("what was chosen has its effects", func() string {
		if got := testworld.Ask[string](w, "select coalesce(string_agg(stream || event, ' ' order by stream, event), '') from effects"); got != "orders1 orders2 orders3 user.created1 user.created2 user.created3" {
			return got
		}
		return ""
	})
	showImports(ctx, ph)
	cancel()
	<-ended
}
