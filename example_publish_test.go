package posthorn_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/relay/redis"
	"github.com/posthorn/posthorn/seal"
	"github.com/posthorn/posthorn/seal/keeper"
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

// protojson represents a codec other than encoding/json.
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

func ExamplePublisher() {
	ph, reader, ctx, end := forExample("publish.md")
	defer end()

	publisher := ph.Publisher(posthorn.PublisherConfig{})
	for reading := range 10_000 {
		err := publisher.PublishAsync(ctx, posthorn.Message{Type: "sensor.read", Payload: reading}, func(_ int64, err error) {
			if err != nil {
				log.Print(err) // the only report of this error
			}
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	publisher.Close() // waits until all messages are written

	n := 0
	for _, err := range reader.Read(posthorn.ReadConfig{}).Events(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		n++
	}
	fmt.Println(n, "events")
	// Output: 10000 events
}

func ExamplePublisher_Publish() {
	ph, _, ctx, end := forExample("publish.md")
	defer end()

	publisher := ph.Publisher(posthorn.PublisherConfig{})
	defer publisher.Close()
	// Calls that run at the same time share a commit.
	ids, err := publisher.Publish(ctx, posthorn.Message{Type: "page.viewed", Key: "/"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(ids), "event")
	// Output: 1 event
}

func ExampleClient_Schedule() {
	_, err := ph.Schedule(ctx, ph.Pool(), posthorn.Schedule{
		Name:     "invoices",
		Cron:     "0 8 1 * *",
		TimeZone: "Europe/Berlin",
		Type:     "invoices.due",
		Payload:  map[string]string{"kind": "monthly"},
	})
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleClient_Schedule_job() {
	_, err := ph.Schedule(ctx, ph.Pool(), posthorn.Schedule{
		Name: "report",
		Cron: "0 7 * * *",
		Job:  &posthorn.NewJob{Title: "Send the report", Tags: []string{"mail"}, UniqueKey: "report"},
	})
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleClient_Schedule_everyAndAt() {
	for _, s := range []posthorn.Schedule{
		{Name: "poll", Every: 30 * time.Second, Type: "poll.due", CatchUp: posthorn.CatchUpSkip},
		{Name: "launch", At: time.Date(2030, time.May, 1, 9, 0, 0, 0, time.UTC), Type: "launch"},
	} {
		if _, err := ph.Schedule(ctx, ph.Pool(), s); err != nil {
			log.Fatal(err)
		}
	}
}

func ExampleClient_Admin_schedules() {
	schedules, err := ph.Admin().Schedules(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range schedules {
		log.Println(s.Name, s.State, s.NextRunAt, s.LastError)
	}
}

func ExampleSealConfig() {
	dsn := os.Getenv("DATABASE_URL")
	key, err := keeper.Open(ctx, "file:///etc/posthorn/seal.key")
	if err != nil {
		log.Fatal(err)
	}
	defer key.Close()
	ph, err := posthorn.Open(ctx, posthorn.Config{
		DatabaseURL: dsn,
		Seal:        posthorn.SealConfig{Keepers: seal.Keepers{"": key}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer ph.Close()
}

// A program that imports a confidential stream from a broker reads its keys from the
// publisher's database.
func ExampleKeysFrom() {
	dsn, clinic := os.Getenv("DATABASE_URL"), os.Getenv("CLINIC_DATABASE_URL")
	key, err := keeper.Open(ctx, "file:///etc/posthorn/seal.key")
	if err != nil {
		log.Fatal(err)
	}
	defer key.Close()
	ph, err := posthorn.Open(ctx, posthorn.Config{
		DatabaseURL: dsn,
		Seal: posthorn.SealConfig{
			Keepers:  seal.Keepers{"": key},
			KeysFrom: posthorn.KeysFrom{DatabaseURL: clinic},
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer ph.Close()
	source, err := redis.OpenSource(ctx, "redis://localhost:6379", redis.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer source.Close()
	ph.Import("clinic", posthorn.ImportConfig{Streams: []string{"patients"}}, source)
}

// The payloads of a confidential stream are sealed in the log, and opened for readers
// with the keeper.
func Example_confidential() {
	tb := &exampleTB{ctx: context.Background()}
	dsn, dir := posthorntest.Database(tb), tempDir()
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "seal.key")
	if err := keeper.NewKeyFile(path); err != nil {
		log.Fatal(err)
	}
	ctx := tb.ctx
	key, err := keeper.Open(ctx, "file://"+path)
	if err != nil {
		log.Fatal(err)
	}
	defer key.Close()
	ph, err := posthorn.Open(ctx, posthorn.Config{DatabaseURL: dsn, Seal: posthorn.SealConfig{Keepers: seal.Keepers{"": key}}})
	if err != nil {
		log.Fatal(err)
	}
	defer func() {
		ph.Close()
		for _, cleanup := range tb.cleanups {
			cleanup()
		}
	}()
	if _, err := ph.Pool().Exec(ctx, "select posthorn.set_stream_policy('default', 'patients', 'confidential')"); err != nil {
		log.Fatal(err)
	}
	if _, err := ph.Publish(ctx, ph.Pool(), posthorn.Message{Type: "diagnosed", Stream: "patients", Payload: "measles"}); err != nil {
		log.Fatal(err)
	}
	for e, err := range ph.Read(posthorn.ReadConfig{}).Events(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(string(e.Payload), e.Confidential)
	}
	for e := range ph.Read(posthorn.ReadConfig{KeepSealed: true}).Events(ctx) {
		fmt.Println(seal.IsSealed(e.Payload))
	}
	// Output:
	// "measles" true
	// true
}

func tempDir() string {
	dir, err := os.MkdirTemp("", "")
	if err != nil {
		log.Fatal(err)
	}
	return dir
}
