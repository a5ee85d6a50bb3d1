package listen_test

import (
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/listen"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testdir"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/localpg"
	"github.com/posthorn/posthorn/posthorntest"
)

// No listener misses an event or gets it twice when the server is killed and started
// again, whether it shares the read or is catching up.
// seed 001.50-59
func TestListenThroughACrash(t *testing.T) {
	t.Parallel()
	config := testpg.Config(testdir.New(t, "listen-").Path, testpg.BinDir(), map[string]string{"shared_buffers": "32MB", "wal_writer_delay": "10s"})
	start := func() *localpg.Server {
		ctx := await.Context(t)
		server, err := localpg.Start(ctx, config)
		if err != nil {
			t.Fatal(err)
		}
		return server
	}
	server := start()
	t.Cleanup(func() {
		if err := server.Kill(); err != nil {
			t.Error(err)
		}
	})
	w := &world{testworld.Open(t, posthorn.Config{DatabaseURL: server.URL(), Migrate: true, Logger: slog.New(slog.DiscardHandler)})}

	var published atomic.Int64
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() { // events, and transactions that leave nothing
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := w.Publish(t.Context(), w.Pool(), posthorn.Message{Type: "e"}); err == nil {
				published.Add(1)
			}
			for range 20 {
				_, _ = w.Pool().Exec(t.Context(), "do $$ begin perform pg_current_xact_id(); raise exception 'in vain'; end $$")
			}
		}
	}()
	var heard sync.WaitGroup
	results := make([][]int64, 4)
	for i := range results {
		l := w.listen(listen.Start{From: posthorn.Beginning, Buffer: 1_000_000})
		heard.Go(func() {
			for {
				e, err, ok := l.next()
				if err != nil || !ok {
					t.Error("listener ended: ", err)
					return
				}
				if e.Type == "last" {
					return
				}
				results[i] = append(results[i], e.ID)
			}
		})
	}
	reachable := func() bool {
		_, err := w.Publish(t.Context(), w.Pool(), posthorn.Message{Type: "e"})
		return err == nil
	}
	for range 2 {
		before := published.Load()
		await.True(t, "some more is published", func() bool { return published.Load() > before+20 })
		if err := server.Kill(); err != nil {
			t.Fatal(err)
		}
		server = start()
		await.True(t, "the server is back", reachable)
		// Events may come twice after two crashes without upkeep in between.
		if _, err := w.Pool().Exec(t.Context(), "select posthorn.tend()"); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	<-stopped
	want := testworld.Column[int64](w, "select id from posthorn.events order by id")
	posthorntest.Publish(t, w.Client, posthorn.Message{Type: "last"})
	heard.Wait()
	for _, got := range results {
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("heard %d events, want %d, each once", len(got), len(want))
		}
	}
}
