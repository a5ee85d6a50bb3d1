package posthorn_test

import (
	"context"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/await"
)

// Every exported function that takes a DB, called with all that it can send.
var takesDB = map[string]func(w *world, db posthorn.DB, x string) error{
	"Publish": func(w *world, db posthorn.DB, x string) error {
		_, err := w.Publish(w.t.Context(), db, posthorn.Message{Type: "later", DeliverAt: time.Now().Add(time.Hour), DedupKey: x}, all())
		return err
	},
	"PublishTo": func(w *world, db posthorn.DB, _ string) error {
		later := all()
		later.DeliverAt = time.Now().Add(time.Hour)
		_, err := w.PublishTo(w.t.Context(), db, "g", "a", all(), later)
		return err
	},
	"Enqueue": func(w *world, db posthorn.DB, x string) error {
		job := posthorn.NewJob{
			Title: "a", Description: "b", Tags: []string{`c"`}, Payload: json.RawMessage(`{"a": 1}`), Priority: 3,
			RunAt: time.Now().Add(time.Hour), MaxRetries: 2, RetryDelays: []time.Duration{time.Second, time.Minute},
			UniqueKey: x, UniqueFor: time.Hour, Metadata: map[string]any{"a": 1},
		}
		if _, err := w.Enqueue(w.t.Context(), db, job); err != nil {
			return err
		}
		_, err := w.Enqueue(w.t.Context(), db, job, posthorn.NewJob{Title: "plain"})
		return err
	},
	"CancelJob": func(w *world, db posthorn.DB, _ string) error {
		return w.CancelJob(w.t.Context(), db, w.enqueue(posthorn.NewJob{Title: "a"})[0], "why")
	},
	"RetryJob": func(w *world, db posthorn.DB, x string) error {
		id := w.enqueue(posthorn.NewJob{Title: "a", Tags: []string{x}})[0]
		w.exec("select from posthorn.claim_jobs('default', 'worker', array[$1::text])", x)
		return w.RetryJob(w.t.Context(), db, id, "why")
	},
	"Complete": func(w *world, db posthorn.DB, x string) error {
		completed := make(chan error, 1)
		w.Work([]string{x}, posthorn.WorkConfig{}, func(ctx context.Context, job posthorn.Job) error {
			err := job.SetResult(map[string]int{"a": 1})
			completed <- errors.Join(err, job.Complete(ctx, db))
			return nil
		})
		w.enqueue(posthorn.NewJob{Title: "a", Tags: []string{x}})
		return await.Value(w.t, "a job is completed", completed)
	},
	"Schedule": func(w *world, db posthorn.DB, x string) error {
		_, err := w.Schedule(w.t.Context(), db, posthorn.Schedule{
			Name: x, Cron: "@daily", TimeZone: "Europe/Berlin", CatchUp: posthorn.CatchUpAll, Type: "t", Payload: json.RawMessage("{}"),
			Stream: "s", Key: "k", Metadata: map[string]any{"a": 1},
		})
		return err
	},
	"Unschedule": func(w *world, db posthorn.DB, _ string) error {
		w.schedule("gone")
		found, err := w.Unschedule(w.t.Context(), db, "gone")
		if !found && err == nil {
			err = errors.New("there was none")
		}
		return err
	},
	"RunScheduleNow": func(w *world, db posthorn.DB, _ string) error {
		w.schedule("now")
		_, err := w.RunScheduleNow(w.t.Context(), db, "now")
		return err
	},
}

func (w *world) schedule(name string) {
	w.t.Helper()
	if _, err := w.Schedule(w.t.Context(), w.Pool(), posthorn.Schedule{Name: name, Every: time.Hour, Type: "t"}); err != nil {
		w.t.Fatal(err)
	}
}

func TestEveryDBIsTaken(t *testing.T) {
	t.Parallel()
	equal(t, "functions that take a DB", slices.Sorted(maps.Keys(takesDB)), exportedWithDB(t))
	w := newWorld(t)
	w.exec("select posthorn.define_group('default', 'g')")
	w.exec("select posthorn.subscribe('default', 'g', 'a')")
	w.start()
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
	files, err := fs.Glob(os.DirFS("."), "*.go")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
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
