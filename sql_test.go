package posthorn_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"

	"github.com/posthorn/posthorn"
)

// Two drivers that know nothing of each other.
var drivers = []string{"pgx", "postgres"}

func (w *world) openSQL(driver string) *sql.DB {
	w.t.Helper()
	db, err := sql.Open(driver, withParameter(w.t, w.url, "sslmode", "disable")) // lib/pq would not try without
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { db.Close() })
	return db
}

// all has all that a message can have.
func all() posthorn.Message {
	return posthorn.Message{
		Type: "order.placed", Stream: `s "1"`, Key: `k\1`, Tags: []string{`a"b`, `c\d`, "e,f", "{}"},
		Payload: json.RawMessage(`{"b": "x\\y\"z",  "a": [1, null]}`), Metadata: map[string]any{"user": "ünal"},
	}
}

func TestPublishThroughSQL(t *testing.T) {
	t.Parallel()
	for _, driver := range drivers {
		for name, messages := range map[string][]posthorn.Message{
			"one":     {all()},
			"many":    {all(), {Type: "plain"}, all()},
			"delayed": {{Type: "later", DeliverAt: time.Now().Add(time.Hour), DedupKey: "d"}},
			"special": {all(), {Type: "later", DeliverAt: time.Now().Add(time.Hour)}},
		} {
			t.Run(driver+" "+name, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				db := w.openSQL(driver)
				written := func() int {
					return ask[int](w, "select (select count(*) from posthorn.events) + (select count(*) from posthorn.delayed)")
				}
				for _, commit := range []bool{false, true} {
					tx, err := db.BeginTx(t.Context(), nil)
					if err != nil {
						t.Fatal(err)
					}
					ids, err := w.Publish(t.Context(), posthorn.SQL(tx), messages...)
					if err != nil {
						t.Fatal(err)
					}
					equal(t, "ids", len(ids), len(messages))
					equal(t, "before the end", written(), 0)
					if !commit {
						if err := tx.Rollback(); err != nil {
							t.Fatal(err)
						}
						equal(t, "rolled back", written(), 0)
						continue
					}
					if err := tx.Commit(); err != nil {
						t.Fatal(err)
					}
					equal(t, "committed", written(), len(messages))
				}
			})
		}
	}
}

// What arrives is what was published through pgx itself.
func TestPublishThroughSQLIsTheSame(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	publish := func(db posthorn.DB) {
		t.Helper()
		for _, messages := range [][]posthorn.Message{{all()}, {all(), {Type: "plain"}}} {
			if _, err := w.Publish(t.Context(), db, messages...); err != nil {
				t.Fatal(err)
			}
		}
	}
	publish(w.Pool())
	for _, driver := range drivers {
		db := w.openSQL(driver)
		publish(posthorn.SQL(db))
		conn, err := db.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		publish(posthorn.SQL(conn))
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	var events []posthorn.Event
	for e, err := range w.Reader(posthorn.ReaderConfig{}).Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		e.ID, e.PublishedAt = 0, time.Time{}
		events = append(events, e)
	}
	equal(t, "events", len(events), 15)
	for i := 3; i < len(events); i++ {
		equal(t, "event", events[i], events[i%3])
	}
	equal(t, "tags", events[0].Tags, all().Tags)
	equal(t, "payload", string(events[0].Payload), string(all().Payload.(json.RawMessage)))
}

func TestSQLErrors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, driver := range drivers {
		db := posthorn.SQL(w.openSQL(driver))
		_, err := w.Publish(t.Context(), db, posthorn.Message{})
		wantErr(t, driver, err, posthorn.ErrInvalid)
		_, err = w.Publish(t.Context(), db, posthorn.Message{Type: "e"}, posthorn.Message{})
		wantErr(t, driver, err, posthorn.ErrInvalid)
		if !strings.Contains(err.Error(), "type must be") {
			t.Errorf("%s: the error does not say what is wrong: %v", driver, err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		_, err = w.Publish(ended, db, posthorn.Message{Type: "e"})
		wantErr(t, driver, err, context.Canceled)
		if _, err := db.Exec(t.Context(), "select $1::int", struct{}{}); err == nil {
			t.Errorf("%s takes a struct", driver)
		}
	}
	equal(t, "events", len(w.payloads()), 0)
}
