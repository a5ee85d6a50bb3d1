package posthorn_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// The processes of a namespace that is closed say so once, wait, and go on when it is opened.
func TestProcessesWaitWhileTheirNamespaceIsClosed(t *testing.T) {
	t.Parallel()
	url := posthorntest.Database(t)
	operator := testworld.OpenClient(t, posthorn.Config{DatabaseURL: url}).Admin()
	if err := operator.DefineNamespaceNamed(t.Context(), "shop", nil); err != nil {
		t.Fatal(err)
	}
	log := &testworld.Buffer{}
	w := testworld.Open(t, posthorn.Config{DatabaseURL: url, Namespace: "shop", Logger: slog.New(slog.NewTextHandler(log, nil))})
	events, jobs := make(chan int64, 10), make(chan int64, 10)
	w.Group("g", testworld.FromBeginning()).Handle("h", "e", func(_ context.Context, e posthorn.Event) error {
		events <- e.ID
		return nil
	})
	w.Work([]string{"t"}, posthorn.WorkConfig{}, func(_ context.Context, job posthorn.Job) error {
		jobs <- job.ID
		return nil
	})
	publish := func() error {
		_, err := w.Publish(t.Context(), w.Pool(), posthorn.Message{Type: "e"})
		return err
	}
	enqueue := func() error {
		_, err := w.Enqueue(t.Context(), w.Pool(), posthorn.NewJob{Title: "j", Tags: []string{"t"}})
		return err
	}
	w.Start()
	begin := func(when string) {
		t.Helper()
		if err := publish(); err != nil {
			t.Fatalf("publish %s: %v", when, err)
		}
		if err := enqueue(); err != nil {
			t.Fatalf("enqueue %s: %v", when, err)
		}
		await.Value(t, "the event "+when, events)
		await.Value(t, "the job "+when, jobs)
	}
	begin("before it is closed")

	if err := operator.CloseNamespace(t.Context(), "shop", "db2", time.Minute); err != nil {
		t.Fatal(err)
	}
	for what, call := range map[string]func() error{"publish": publish, "enqueue": enqueue} {
		err := call()
		testworld.WantErr(t, what, err, posthorn.ErrMoved)
		testworld.Equal(t, "the new place", posthorn.MovedTo(err), "db2")
		if text := err.Error(); !strings.HasSuffix(text, "namespace 'shop' is closed: it has moved to db2") {
			t.Errorf("the error of %s reads: %s", what, text)
		}
	}
	refusals := func() int { return strings.Count(log.String(), "cannot take work yet, trying again") }
	await.True(t, "the group and the worker tell that it is closed", func() bool { return refusals() == 2 })
	all, err := operator.Namespaces(t.Context())
	if err != nil || len(all) != 2 || all[1].MovedTo != "db2" || all[1].ClosedAt.IsZero() || all[1].QuietAt.IsZero() {
		t.Errorf("the namespaces are %+v, %v", all, err)
	}

	if err := operator.OpenNamespace(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	begin("after it was opened")
	testworld.Equal(t, "told once each", refusals(), 2)
	if again := strings.Count(log.String(), "trouble is over"); again != 2 {
		t.Errorf("the end was told %d times:\n%s", again, log)
	}
}

// A process whose namespace is being deleted waits with its registration, and does the upkeep of the other namespaces meanwhile.
func TestUpkeepGoesOnInANamespaceThatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	operator := testworld.New(t)
	operator.Exec("select posthorn.define_namespace('shop')")
	w := testworld.Open(t, posthorn.Config{DatabaseURL: operator.URL, Namespace: "shop"})
	operator.Exec("select posthorn.close_namespace('shop')")
	operator.Exec("select posthorn.await_closed('shop')")
	operator.Exec("select posthorn.delete_namespace('shop')")
	operator.Exec("select posthorn.publish('default', 'late', deliver_at => posthorn.now() + interval '1 second')")
	w.Start()
	operator.Await("select exists (select from posthorn.events where type = 'late')")
	testworld.Equal(t, "registered processes", testworld.Ask[int](operator, "select count(*) from posthorn.nodes"), 0)
}
