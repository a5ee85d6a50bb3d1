package relay_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// A relay whose namespace is closed settles the window that it writes, says so once, and goes on
// when the namespace is opened.
func TestRelayWaitsWhileItsNamespaceIsClosed(t *testing.T) {
	t.Parallel()
	r := newRelaying(t)
	r.Exec("select posthorn.define_namespace('shop')")
	logs := &testworld.Buffer{}
	shop := &relaying{&world{testworld.Open(t, posthorn.Config{
		DatabaseURL: r.URL, Namespace: "shop", Logger: slog.New(slog.NewTextHandler(logs, nil)),
	})}, r.sink, map[string][]int64{}}
	shop.relay(soon(), shop.sink)
	shop.send("a", 10)
	shop.awaitWritten()

	writing, closed := make(chan struct{}), make(chan struct{})
	begun := sync.OnceFunc(func() { close(writing) })
	shop.sink.before(func(ctx context.Context, _ posthorn.SinkBatch) error {
		begun()
		select {
		case <-closed:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	shop.send("a", 10)
	await.Closed(t, "the write", writing)
	if err := r.Admin().CloseNamespace(t.Context(), "shop", "db2", time.Minute); err != nil {
		t.Fatal(err)
	}
	close(closed)
	shop.awaitWritten()
	const refused = "cannot work as the leader yet, trying again"
	says(t, logs, refused)

	if err := r.Admin().OpenNamespace(t.Context(), "shop"); err != nil {
		t.Fatal(err)
	}
	shop.send("a", 10)
	shop.awaitWritten()
	if n := strings.Count(logs.String(), refused); n != 1 {
		t.Errorf("it was told %d times:\n%s", n, logs)
	}
}
