package inflow_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
)

import _ "github.com/posthorn/posthorn/relay/redis" // or relay/nats: who knows the URL

// What docs/brokers.md shows.
func TestTheGuide(t *testing.T) {
	w := newWorld(t)
	w.exec("create table effects (stream text not null, event bigint not null)")
	sink, brokerURL := brokers["redis"](t)
	write(t, sink, "orders", 1, 3)
	write(t, sink, "stream:user:events", 1, 3)
	write(t, sink, "others", 1, 3)
	ph := w.open()
	ledger := ph.Group("ledger", posthorn.GroupConfig{
		Source: posthorn.From(brokerURL, "orders", "stream:user:*"), // without this line, it reads the log
		Start:  posthorn.Beginning,
	})
	ledger.HandleTx("book", "order.*", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		_, err := tx.Exec(ctx, "insert into effects (stream, event) values ($1, $2)", e.Stream, e.ID)
		return err
	})
	w.run(ph)
	w.eventually(func() string { return w.effects(6) })
	if n := ask[int](w, "select count(*) from effects where stream = 'others'"); n != 0 {
		t.Error("it reads streams that it is not for")
	}
}
