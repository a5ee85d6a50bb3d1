package posthorn_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	neturl "net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/pg"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// In a pool of one connection, a handler that uses the pool beside its transaction would wait for itself.
func TestPoolOfOneConnectionIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	config, err := pgxpool.ParseConfig(w.URL)
	if err != nil {
		t.Fatal(err)
	}
	config.MaxConns = 1
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for setting, config := range map[string]posthorn.Config{
		"Set MaxConns to 2": {DatabaseURL: w.URL, MaxConns: 1}, "Set pgxpool.Config.MaxConns to 2": {Pool: pool},
	} {
		ph, err := posthorn.Open(t.Context(), config)
		if err == nil {
			ph.Close()
		}
		if !errors.Is(err, posthorn.ErrInvalid) || !strings.Contains(err.Error(), "the pool has 1 connection, and 2 are needed") || !strings.Contains(posthorn.Hint(err), setting) {
			t.Errorf("open with one connection: %v", err)
		}
	}
}

// Heartbeats keep a node alive. A node that upkeep has removed registers again, with its
// handlers.
//
// seed 000.17, 000.47–49
func TestHeartbeat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, id := range []string{"quiet", "swept"} {
		ph, err := posthorn.Open(t.Context(), posthorn.Config{
			DatabaseURL: w.URL, NodeID: id, DisplayName: "the " + id, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(ph.Close)
		posthorn.SetHeartbeat(ph, 20*time.Millisecond)
		ph.Group("billing", testworld.FromBeginning()).Handle("charge", "order.*", func(context.Context, posthorn.Event) error { return nil })
		(&world{&testworld.World{Client: ph, T: t, URL: w.URL}}).Start()
	}
	holds := func(sql string) {
		t.Helper()
		await.True(t, sql, func() bool { return testworld.Ask[bool](w, "select exists (select from "+sql+")") })
	}
	holds("posthorn.node_handlers having count(*) = 2")
	w.Exec("delete from posthorn.nodes where node_id = 'swept'")
	w.TurnClock(5 * time.Minute)
	holds("posthorn.node_status where node_id = 'quiet' and state = 'alive'")
	holds("posthorn.node_handlers where node_id = 'swept' and patterns = '{order.*}'")
	holds("posthorn.nodes where node_id = 'swept' and display_name = 'the swept'")
}

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

// After load a client that runs closes the connections that it does not need.
func TestIdleConnectionsAreClosed(t *testing.T) {
	t.Parallel()
	url := posthorntest.Database(t)
	ph := testworld.OpenClient(t, posthorn.Config{
		DatabaseURL: withSettings(t, url, "pool_max_conn_idle_time=20ms&pool_health_check_period=20ms"), ApplicationName: "loaded",
	})
	w := &testworld.World{Client: ph, T: t, URL: url}
	w.Start()
	observer := testworld.Open(t, posthorn.Config{DatabaseURL: url})
	connections := func() int64 {
		return testworld.Ask[int64](observer, "select count(*) from pg_stat_activity where datname = current_database() and application_name = 'loaded'")
	}
	load := func(pool *pgxpool.Pool) {
		var held []*pgxpool.Conn
		for range pool.Config().MaxConns {
			conn, err := pool.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, conn)
		}
		if n := connections(); n < int64(len(held)) {
			t.Errorf("%d connections under load; want at least %d", n, len(held))
		}
		for _, conn := range held {
			conn.Release()
		}
	}
	load(ph.Pool())
	load(posthorn.Control(ph))
	await.True(t, "idle connections are closed", func() bool { return connections() <= 3 })
}

// Without a setting in the URL the time is ours, not the half an hour of pgx; an explicit
// setting is kept.
func TestIdleTimeOfPools(t *testing.T) {
	t.Parallel()
	url := posthorntest.Database(t)
	for given, want := range map[string]string{url: pg.IdleTime.String(), withSettings(t, url, "pool_max_conn_idle_time=5m"): "5m0s"} {
		ph := testworld.OpenClient(t, posthorn.Config{DatabaseURL: given})
		for _, pool := range []*pgxpool.Pool{ph.Pool(), posthorn.Control(ph)} {
			if got := pool.Config().MaxConnIdleTime; fmt.Sprint(got) != want {
				t.Errorf("idle connections stay for %s; want %s", got, want)
			}
		}
	}
}

// withSettings adds settings to the URL of a database.
func withSettings(t *testing.T, url, settings string) string {
	t.Helper()
	parsed, err := neturl.Parse(url)
	if err != nil {
		t.Fatal(err)
	}
	query := parsed.RawQuery
	if query != "" {
		query += "&"
	}
	parsed.RawQuery = query + settings
	return parsed.String()
}
