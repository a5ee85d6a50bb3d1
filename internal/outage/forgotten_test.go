package outage_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/internal/test/testworld"
	"github.com/posthorn/posthorn/posthorntest"
)

// The transaction of a forgotten connection is ended on the server, where it would keep the locks
// for which the next attempt waits.
func TestAForgottenTransactionKeepsNoLocks(t *testing.T) {
	t.Parallel()
	host := newSilentHost(t)
	host.near.Exec("create table once (n int primary key)")
	var hang sync.Once
	host.far.Group("g", posthorn.GroupConfig{Start: posthorn.Beginning, Timeout: time.Hour, Delays: []time.Duration{0}}).
		HandleTx("h", ">", func(ctx context.Context, tx pgx.Tx, _ posthorn.Event) error {
			if _, err := tx.Exec(ctx, "insert into once values (1)"); err != nil {
				return err
			}
			hang.Do(host.proxy.Hang)
			_, err := tx.Exec(ctx, "select 1")
			return err
		})
	host.near.PublishN(1)
	posthorntest.Run(t, host.far)
	host.near.Await("select exists (select from once)")
}

// asks is how often a statement with a text was executed.
func asks(of *testpg.Statements, text string) (n int) {
	for sql, count := range of.Counts() {
		if strings.Contains(sql, text) {
			n += count
		}
	}
	return n
}

// The server is asked about a statement that takes long, which goes on. A connection that waits for
// notifications stays open, although its backend waits, too.
func TestAConnectionThatWaitsIsNotForgotten(t *testing.T) {
	t.Parallel()
	near := testworld.New(t)
	statements := testpg.CountStatements(t, near.URL)
	far := testworld.Open(t, posthorn.Config{DatabaseURL: statements.URL(t)})
	ctx := await.Context(t)
	listening, err := far.Pool().Acquire(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer listening.Release()
	if _, err := listening.Exec(ctx, "listen news"); err != nil {
		t.Fatal(err)
	}
	notified, waited := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := listening.Conn().WaitForNotification(ctx)
		notified <- err
	}()
	unlock := testpg.Lock(t, near.Pool(), "nodes")
	go func() {
		_, err := far.Pool().Exec(ctx, "select from posthorn.nodes")
		waited <- err
	}()
	await.True(t, "the server is asked twice", func() bool { return asks(statements, "ClientRead") >= 2 })
	unlock()
	near.Exec("notify news")
	if err := await.Value(t, "the statement ends", waited); err != nil {
		t.Error(err)
	}
	if err := await.Value(t, "the notification comes", notified); err != nil {
		t.Error(err)
	}
}

// A pooler has ids of its own for its connections, which mean others on the server.
func TestNobodyIsAskedThroughAPooler(t *testing.T) {
	t.Parallel()
	near := testworld.New(t)
	statements := testpg.CountStatements(t, testpg.Pooler(t, near.URL))
	far := testworld.Open(t, posthorn.Config{DatabaseURL: statements.URL(t)})
	ctx := await.Context(t)
	unlock := testpg.Lock(t, near.Pool(), "nodes")
	waited := make(chan error, 1)
	go func() {
		_, err := far.Pool().Exec(ctx, "select from posthorn.nodes")
		waited <- err
	}()
	before := asks(statements, "pg_backend_pid")
	await.True(t, "the pooler is noticed", func() bool { return asks(statements, "pg_backend_pid") > before })
	unlock()
	if err := await.Value(t, "the statement ends", waited); err != nil {
		t.Error(err)
	}
	if n := asks(statements, "ClientRead"); n > 0 {
		t.Errorf("the server was asked %d times about ids that are not its own", n)
	}
}

// A handler whose connection was forgotten gets an error that says so.
func TestTheErrorOfAForgottenConnection(t *testing.T) {
	t.Parallel()
	host := newSilentHost(t)
	conn, err := host.far.Pool().Acquire(await.Context(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	host.proxy.Hang()
	_, err = conn.Exec(t.Context(), "select $1::int", 1) // without arguments, pgx returns that it has closed the connection
	var hinted interface{ Hint() string }
	if err == nil || !strings.Contains(err.Error(), "forgotten on its way") || !errors.As(err, &hinted) || hinted.Hint() == "" {
		t.Errorf("the statement returned %v", err)
	}
}
