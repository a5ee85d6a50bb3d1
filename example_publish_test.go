package posthorn_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"log"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn"
)

var (
	pool  *pgxpool.Pool
	db    *sql.DB
	order = Order{ID: "7", Cents: 1990}
)

func ExampleClient_Publish() {
	err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, "insert into orders (id, cents) values ($1, $2)", order.ID, order.Cents); err != nil {
			return err
		}
		_, err := ph.Publish(ctx, tx, posthorn.Message{Type: "order.placed", Key: order.ID, Payload: order})
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleClient_Publish_many() {
	lines := []Order{order, order}
	messages := make([]posthorn.Message, len(lines))
	for i, line := range lines {
		messages[i] = posthorn.Message{Type: "order.placed", Key: line.ID, Payload: line}
	}
	ids, err := ph.Publish(ctx, pool, messages...)
	if err != nil {
		log.Fatal(err)
	}
	log.Println("published", ids)
}

func ExampleMessage_delayed() {
	_, err := ph.Publish(ctx, pool, posthorn.Message{
		Type:      "order.reminder",
		Key:       order.ID,
		DeliverAt: time.Now().Add(24 * time.Hour),
	})
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleMessage_dedup() {
	_, err := ph.Publish(ctx, pool, posthorn.Message{
		Type:     "order.placed",
		Key:      order.ID,
		Payload:  order,
		DedupKey: "order.placed/" + order.ID,
	})
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleSQL() {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, "insert into orders (id, cents) values ($1, $2)", order.ID, order.Cents); err != nil {
		log.Fatal(err)
	}
	_, err = ph.Publish(ctx, posthorn.SQL(tx), posthorn.Message{Type: "order.placed", Key: order.ID, Payload: order})
	if err != nil {
		log.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		log.Fatal(err)
	}
}

// protojson stands for a codec that is not encoding/json.
type codec struct{}

func (codec) Marshal(v any) ([]byte, error)      { return json.Marshal(v) }
func (codec) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }

var protojson codec

func ExampleConfig_codec() {
	ph, err := posthorn.Open(context.Background(), posthorn.Config{
		DatabaseURL: "postgres://localhost/shop",
		Encode:      protojson.Marshal,
		Decode:      protojson.Unmarshal,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer ph.Close()
}
