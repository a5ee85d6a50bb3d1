package schema_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/posthorntest"
	"github.com/posthorn/posthorn/schema"
)

const (
	retrying = "schema is in use, retrying"
	waiting  = "waiting for another process that migrates the database"
)

// onLog is a log handler that calls a function with each message.
type onLog func(message string)

func (f onLog) Enabled(context.Context, slog.Level) bool { return true }
func (f onLog) WithAttrs([]slog.Attr) slog.Handler       { return f }
func (f onLog) WithGroup(string) slog.Handler            { return f }
func (f onLog) Handle(_ context.Context, r slog.Record) error {
	f(r.Message)
	return nil
}

// logMessages receives log messages, so that a test can wait for one.
type logMessages chan string

func (l logMessages) await(t *testing.T, message string) {
	t.Helper()
	for await.Value(t, message, l) != message {
	}
}

const lockTimeout = 20 * time.Millisecond

// start migrates in a goroutine, on a connection of its own.
func start(t *testing.T, b schema.Bundle, url string) (logMessages, <-chan error) {
	t.Helper()
	log := make(logMessages, 1000)
	logger := slog.New(onLog(func(message string) { log <- message }))
	done := make(chan error, 1)
	conn := connect(t, url)
	go func() {
		_, err := b.Migrate(t.Context(), conn, schema.Options{LockTimeout: lockTimeout, Logger: logger})
		done <- err
	}()
	return log, done
}

// inUse opens a transaction and returns a migration that has to wait for it, and a
// function that ends the transaction.
func inUse(t *testing.T, url string) (next schema.Bundle, end func()) {
	t.Helper()
	migrate(t, schema.Load(t, small(1, 42)), connect(t, url))
	user := connect(t, url)
	run(t, user, "begin; select * from posthorn.parts")
	next = schema.Load(t, small(1, 42, "alter table posthorn.parts add column name text;"))
	return next, func() { run(t, user, "commit") }
}

func TestMigrateWaitsWithoutBlockingOthers(t *testing.T) {
	url := posthorntest.EmptyDatabase(t)
	next, end := inUse(t, url)
	publisher := connect(t, url)
	run(t, publisher, "set statement_timeout = '10s'")
	log, done := start(t, next, url)

	// While the transaction is open, other transactions succeed between the attempts,
	// or after waiting behind one.
	for range 5 {
		log.await(t, retrying)
		run(t, publisher, "insert into posthorn.parts values (1)")
	}
	end()

	if err := <-done; err != nil {
		t.Error(err)
	}
	if got := standing(t, next, publisher); got != schema.Current {
		t.Errorf("standing %q, want %q", got, schema.Current)
	}
}

// If every process made attempts, each would block publishers during the pauses of
// the others.
func TestOneProcessAttempts(t *testing.T) {
	url := posthorntest.EmptyDatabase(t)
	next, end := inUse(t, url)
	first, firstDone := start(t, next, url)
	first.await(t, retrying)
	second, secondDone := start(t, next, url)
	second.await(t, waiting)

	first.await(t, retrying)
	first.await(t, retrying)
	select {
	case message := <-second:
		t.Errorf("the second process logs %q", message)
	default:
	}
	end()

	for _, done := range []<-chan error{firstDone, secondDone} {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestMigrateGivesUpWithContext(t *testing.T) {
	url := posthorntest.EmptyDatabase(t)
	next, end := inUse(t, url)
	defer end()
	ctx, cancel := context.WithCancel(t.Context())
	cancelInPause := slog.New(onLog(func(message string) {
		if message == retrying {
			cancel()
		}
	}))

	_, err := next.Migrate(ctx, connect(t, url), schema.Options{LockTimeout: lockTimeout, Logger: cancelInPause})

	if !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "migrations/002_more.sql") {
		t.Errorf("error = %v, want context.Canceled and the file that had to wait", err)
	}
}

// Upkeep locks tables in another order than a migration does. So a migration waits for upkeep before it locks any table.
func TestMigrateWaitsForUpkeep(t *testing.T) {
	t.Parallel()
	url := posthorntest.Database(t)
	upkeep := connect(t, url)
	run(t, upkeep, "begin; select pg_advisory_xact_lock(posthorn.lock_class('upkeep'), hashtext('sweep'))") // as posthorn.tend does
	log, done := start(t, nextRelease(t), url)
	log.await(t, retrying)
	run(t, upkeep, "commit")
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// While a migration works, programs leave upkeep to a later turn.
func TestUpkeepRestsDuringAMigration(t *testing.T) {
	t.Parallel()
	url := posthorntest.Database(t)
	observer := connect(t, url)
	run(t, observer, "select pg_advisory_lock(42)")
	next := present(t)
	next["revision"] = file("1000000 -")
	next[fmt.Sprintf("migrations/%03d_next.sql", schema.Embedded().Migration+1)] = file("select pg_advisory_xact_lock(42);\n")
	_, done := start(t, schema.Load(t, next), url)
	await.True(t, "a part of upkeep rests", func() bool {
		return value[string](t, observer, "select posthorn.tend_part('sweep')->>'sweep'") == "busy"
	})
	run(t, observer, "select pg_advisory_unlock(42)")
	if err := <-done; err != nil {
		t.Error(err)
	}
}
