package consume_test

import (
	"context"
	"testing"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testworld"
)

// database is a database with an open client.
type database struct{ *testworld.World }

func newDatabase(t *testing.T) *database {
	t.Helper()
	return &database{testworld.New(t)}
}

// other is another process.
func (w *database) other() *database {
	w.T.Helper()
	return &database{w.Other()}
}

// create lets a fetch make a group and its subscriptions while there is nothing to
// fetch. The fetch waits until it is told to stop.
func (w *database) create(g *posthorn.Group, subscriptions int) {
	w.T.Helper()
	ctx, stop := context.WithCancel(w.T.Context())
	defer stop()
	fetched := make(chan error, 1)
	go func() {
		_, err := g.Fetch(ctx, 1)
		fetched <- err
	}()
	await.True(w.T, "the group is there", func() bool {
		return testworld.Ask[bool](w, "select exists (select from posthorn.groups where name = $1)", g.Name())
	})
	w.subscribed(subscriptions)
	stop()
	testworld.WantErr(w.T, "fetching nothing", await.Value(w.T, "the end of the fetch", fetched), context.Canceled)
}
