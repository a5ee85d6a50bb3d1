package stdsql_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

func TestMain(m *testing.M) { posthorntest.Main(m) }

type world struct{ *testworld.World }

func newWorld(t *testing.T) *world {
	t.Helper()
	return &world{testworld.New(t)}
}

// Two drivers without common code.
var drivers = []string{"pgx", "postgres"}

func (w *world) openSQL(driver string) *sql.DB {
	w.T.Helper()
	url, err := url.Parse(w.URL)
	if err != nil {
		w.T.Fatal(err)
	}
	query := url.Query()
	query.Set("sslmode", "disable") // lib/pq requires it
	url.RawQuery = query.Encode()
	db, err := sql.Open(driver, url.String())
	if err != nil {
		w.T.Fatal(err)
	}
	w.T.Cleanup(func() { db.Close() })
	return db
}

// all has a value in every field.
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
					return testworld.Ask[int](w, "select (select count(*) from posthorn.events) + (select count(*) from posthorn.delayed)")
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
					testworld.Equal(t, "ids", len(ids), len(messages))
					testworld.Equal(t, "before the end", written(), 0)
					if !commit {
						if err := tx.Rollback(); err != nil {
							t.Fatal(err)
						}
						testworld.Equal(t, "rolled back", written(), 0)
						continue
					}
					if err := tx.Commit(); err != nil {
						t.Fatal(err)
					}
					testworld.Equal(t, "committed", written(), len(messages))
				}
			})
		}
	}
}

// The events are the same as those published through pgx.
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
	for e, err := range w.Read(posthorn.ReadConfig{}).Events(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		e.ID, e.PublishedAt = 0, time.Time{}
		events = append(events, e)
	}
	testworld.Equal(t, "events", len(events), 15)
	for i := 3; i < len(events); i++ {
		testworld.Equal(t, "event", events[i], events[i%3])
	}
	testworld.Equal(t, "tags", events[0].Tags, all().Tags)
	testworld.Equal(t, "payload", string(events[0].Payload), string(all().Payload.(json.RawMessage)))
}

func TestSQLErrors(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, driver := range drivers {
		db := posthorn.SQL(w.openSQL(driver))
		_, err := w.Publish(t.Context(), db, posthorn.Message{})
		testworld.WantErr(t, driver, err, posthorn.ErrInvalid)
		_, err = w.Publish(t.Context(), db, posthorn.Message{Type: "e"}, posthorn.Message{})
		testworld.WantErr(t, driver, err, posthorn.ErrInvalid)
		if !strings.Contains(err.Error(), "type must be") {
			t.Errorf("%s: the error does not say what is wrong: %v", driver, err)
		}
		ended, end := context.WithCancel(t.Context())
		end()
		_, err = w.Publish(ended, db, posthorn.Message{Type: "e"})
		testworld.WantErr(t, driver, err, context.Canceled)
		if _, err := db.Exec(t.Context(), "select $1::int", struct{}{}); err == nil {
			t.Errorf("%s takes a struct", driver)
		}
	}
	testworld.Equal(t, "events", testworld.Ask[int](w, "select count(*) from posthorn.events"), 0)
}

// Every exported function with a DB is called, with a value for every argument.
var takesDB = map[string]func(w *world, db posthorn.DB, x string) error{
	"Publish": func(w *world, db posthorn.DB, x string) error {
		_, err := w.Publish(w.T.Context(), db, posthorn.Message{Type: "later", DeliverAt: time.Now().Add(time.Hour), DedupKey: x}, all())
		return err
	},
	"PublishTo": func(w *world, db posthorn.DB, _ string) error {
		later := all()
		later.DeliverAt = time.Now().Add(time.Hour)
		_, err := w.PublishTo(w.T.Context(), db, "g", "a", all(), later)
		return err
	},
	"Enqueue": func(w *world, db posthorn.DB, x string) error {
		job := posthorn.NewJob{
			Title: "a", Description: "b", Tags: []string{`c"`}, Payload: json.RawMessage(`{"a": 1}`), Priority: 3,
			RunAt: time.Now().Add(time.Hour), MaxRetries: 2, RetryDelays: []time.Duration{time.Second, time.Minute},
			UniqueKey: x, UniqueFor: time.Hour, FairKey: x, Weight: 2, Metadata: map[string]any{"a": 1},
		}
		if _, err := w.Enqueue(w.T.Context(), db, job); err != nil {
			return err
		}
		_, err := w.Enqueue(w.T.Context(), db, job, posthorn.NewJob{Title: "plain"})
		return err
	},
	"admin.CancelJob": func(w *world, db posthorn.DB, _ string) error {
		return w.Admin().In(db).CancelJob(w.T.Context(), w.enqueue(posthorn.NewJob{Title: "a"})[0], "why")
	},
	"admin.ResetJob": func(w *world, db posthorn.DB, x string) error {
		id := w.enqueue(posthorn.NewJob{Title: "a", Tags: []string{x}})[0]
		w.Exec("select from posthorn.claim_jobs('default', 'worker', array[$1::text])", x)
		return w.Admin().In(db).ResetJob(w.T.Context(), id, "why")
	},
	"Complete": func(w *world, db posthorn.DB, x string) error {
		completed := make(chan error, 1)
		w.Work([]string{x}, posthorn.WorkConfig{}, func(ctx context.Context, job posthorn.Job) error {
			err := job.SetResult(map[string]int{"a": 1})
			completed <- errors.Join(err, job.Complete(ctx, db))
			return nil
		})
		w.enqueue(posthorn.NewJob{Title: "a", Tags: []string{x}})
		return await.Value(w.T, "a job is completed", completed)
	},
	"Schedule": func(w *world, db posthorn.DB, x string) error {
		_, err := w.Schedule(w.T.Context(), db, posthorn.Schedule{
			Name: x, Cron: "@daily", TimeZone: "Europe/Berlin", CatchUp: posthorn.CatchUpAll, Type: "t", Payload: json.RawMessage("{}"),
			Stream: "s", Key: "k", Metadata: map[string]any{"a": 1},
		})
		return err
	},
	"Unschedule": func(w *world, db posthorn.DB, _ string) error {
		w.schedule("gone")
		found, err := w.Unschedule(w.T.Context(), db, "gone")
		if !found && err == nil {
			err = errors.New("there was none")
		}
		return err
	},
	"admin.RunScheduleNow": func(w *world, db posthorn.DB, _ string) error {
		w.schedule("now")
		_, err := w.Admin().In(db).RunScheduleNow(w.T.Context(), "now")
		return err
	},
}

// enqueue enqueues in a separate transaction.
func (w *world) enqueue(jobs ...posthorn.NewJob) []int64 {
	w.T.Helper()
	ids, err := w.Enqueue(w.T.Context(), w.Pool(), jobs...)
	if err != nil {
		w.T.Fatal(err)
	}
	return ids
}

func (w *world) schedule(name string) {
	w.T.Helper()
	if _, err := w.Schedule(w.T.Context(), w.Pool(), posthorn.Schedule{Name: name, Every: time.Hour, Type: "t"}); err != nil {
		w.T.Fatal(err)
	}
}

func TestEveryDBIsTaken(t *testing.T) {
	t.Parallel()
	own := slices.DeleteFunc(slices.Sorted(maps.Keys(takesDB)), func(name string) bool { return strings.HasPrefix(name, "admin.") })
	testworld.Equal(t, "functions that take a DB", own, exportedWithDB(t))
	w := newWorld(t)
	w.Exec("select posthorn.define_group('default', 'g')")
	w.Exec("select posthorn.subscribe('default', 'g', 'a')")
	w.Start()
	for name, call := range takesDB {
		t.Run(name, func(t *testing.T) {
			check := func(kind string, db posthorn.DB) {
				t.Helper()
				if err := call(w, db, name+" "+kind); err != nil {
					t.Errorf("with %s: %v", kind, err)
				}
			}
			check("a pool", w.Pool())
			if err := pgx.BeginFunc(t.Context(), w.Pool(), func(tx pgx.Tx) error { check("a transaction", tx); return nil }); err != nil {
				t.Error(err)
			}
			for _, driver := range drivers {
				db := w.openSQL(driver)
				check(driver, posthorn.SQL(db))
				tx, err := db.BeginTx(t.Context(), nil)
				if err != nil {
					t.Fatal(err)
				}
				check(driver+" in a transaction", posthorn.SQL(tx))
				if err := tx.Commit(); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// exportedWithDB are the names of the package's exported functions with an argument of type DB.
func exportedWithDB(t *testing.T) []string {
	t.Helper()
	files, err := fs.Glob(os.DirFS("../.."), "*.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join("../..", file), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || !f.Name.IsExported() {
				continue
			}
			for _, arg := range f.Type.Params.List {
				if kind, ok := arg.Type.(*ast.Ident); ok && kind.Name == "DB" {
					names = append(names, f.Name.Name)
				}
			}
		}
	}
	slices.Sort(names)
	return names
}
