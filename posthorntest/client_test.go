package posthorntest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/posthorntest"
)

var errDeclined = errors.New("card declined")

func equal[T any](t *testing.T, what string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// Drain waits for all events published after Run was called, and for the events that
// their handlers publish.
func TestDrainWaitsForWhatHandlersPublish(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t)
	var shipped atomic.Int64
	ph.Group("billing", posthorn.GroupConfig{}).Handle("charge", "order.placed", func(ctx context.Context, _ posthorn.Event) error {
		_, err := ph.Publish(ctx, ph.Pool(), posthorn.Message{Type: "order.paid"})
		return err
	})
	ph.Group("shipping", posthorn.GroupConfig{}).HandleTx("ship", "order.paid", func(context.Context, pgx.Tx, posthorn.Event) error {
		shipped.Add(1)
		return nil
	})
	posthorntest.Run(t, ph)
	for range 3 {
		ids := posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed"}, posthorn.Message{Type: "order.placed"})
		equal(t, "ids", len(ids), 2)
	}
	posthorntest.Drain(t, ph)
	equal(t, "shipped", shipped.Load(), 6)
	equal(t, "published", len(posthorntest.Published(t, ph, "order.*")), 12)
	var paid []admin.State
	for _, e := range posthorntest.Published(t, ph, "*.paid") {
		paid = append(paid, posthorntest.State(t, ph, e.ID, "shipping"))
	}
	equal(t, "states", paid, slices.Repeat([]admin.State{admin.Completed}, 6))
}

// Drain does not wait for a retry that is due later, in any order of groups. Advance
// makes the retry due.
func TestAdvanceToTheNextAttempt(t *testing.T) {
	t.Parallel()
	for _, order := range []posthorn.Order{posthorn.Unordered, posthorn.OrderKey, posthorn.OrderTotal} {
		t.Run(string(order), func(t *testing.T) {
			t.Parallel()
			ph := posthorntest.Open(t)
			g := ph.Group("billing", posthorn.GroupConfig{Order: order, Delays: []time.Duration{time.Hour}})
			g.Handle("charge", "order.placed", func(_ context.Context, e posthorn.Event) error {
				if e.Delivery == 1 && e.Key == "a" {
					return errDeclined
				}
				return nil
			})
			posthorntest.Run(t, ph)
			first := posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed", Key: "a"})[0]
			posthorntest.Drain(t, ph)
			equal(t, "after the first attempt", posthorntest.State(t, ph, first, "billing"), admin.Retrying)

			// The second event waits in the slot of the first, if the group has an
			// order. Then it fails once.
			second := posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed", Key: "a"})[0]
			posthorntest.Drain(t, ph)
			posthorntest.Advance(t, ph, time.Hour)
			posthorntest.Drain(t, ph)
			equal(t, "after the second attempt", posthorntest.State(t, ph, first, "billing"), admin.Completed)
			posthorntest.Advance(t, ph, 2*time.Hour)
			posthorntest.Drain(t, ph)
			equal(t, "the second event", posthorntest.State(t, ph, second, "billing"), admin.Completed)
		})
	}
}

func TestAdvanceToDelayedEvents(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t)
	var handled atomic.Int64
	ph.Group("billing", posthorn.GroupConfig{}).Handle("remind", "order.due", func(context.Context, posthorn.Event) error {
		handled.Add(1)
		return nil
	})
	posthorntest.Run(t, ph)
	due := time.Date(2040, 5, 1, 12, 0, 0, 0, time.UTC)
	id := posthorntest.Publish(t, ph, posthorn.Message{Type: "order.due", DeliverAt: due})[0]
	posthorntest.Drain(t, ph)
	equal(t, "handled before it is due", handled.Load(), 0)
	equal(t, "published before it is due", len(posthorntest.Published(t, ph, ">")), 0)
	equal(t, "state", posthorntest.State(t, ph, id, "billing"), admin.Delayed)
	posthorntest.SetClock(t, ph, due)
	posthorntest.Drain(t, ph)
	equal(t, "handled", handled.Load(), 1)
	if at := posthorntest.Published(t, ph, ">")[0].PublishedAt; at.Before(due) || at.After(due.Add(time.Hour)) {
		t.Errorf("published at %v", at)
	}
}

func TestOpenWithConfig(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t, posthorn.Config{Namespace: "shop", NodeID: "one"})
	equal(t, "namespace", ph.Namespace(), "shop")
	posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed"})
	other := posthorntest.Open(t, posthorn.Config{Pool: ph.Pool(), Namespace: "shop"})
	equal(t, "seen by the other client", len(posthorntest.Published(t, other, ">")), 1)
}

// stub is a testing.TB whose failures do not fail the test.
type stub struct {
	testing.TB
	said []string
}

func (s *stub) Helper() {}

func (s *stub) Errorf(format string, args ...any) {
	s.said = append(s.said, fmt.Sprintf(format, args...))
}

func (s *stub) Fatalf(format string, args ...any) {
	s.Errorf(format, args...)
	runtime.Goexit()
}

func (s *stub) Fatal(args ...any) {
	s.said = append(s.said, fmt.Sprint(args...))
	runtime.Goexit()
}

// fails runs f, which must fail its test, and returns the failure messages.
func fails(t *testing.T, f func(t testing.TB)) string {
	t.Helper()
	s := &stub{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		f(s)
	}()
	<-done
	if len(s.said) == 0 {
		t.Error("the test did not fail")
	}
	return strings.Join(s.said, "\n")
}

func TestRunWithError(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t)
	nothing := func(context.Context, posthorn.Event) error { return nil }
	g := ph.Group("billing", posthorn.GroupConfig{})
	g.Handle("charge", "order.placed", nothing)
	g.Handle("refund", "order..refunded", nothing)
	said := fails(t, func(t testing.TB) { posthorntest.Run(t, ph) })
	if !strings.Contains(said, "is not a pattern") || !strings.Contains(said, "has stopped running") {
		t.Errorf("messages: %s", said)
	}
}

func TestWrongArguments(t *testing.T) {
	t.Parallel()
	ph := posthorntest.Open(t)
	id := posthorntest.Publish(t, ph, posthorn.Message{Type: "order.placed"})[0]
	for want, f := range map[string]func(t testing.TB){
		"is not a pattern": func(t testing.TB) { posthorntest.Published(t, ph, "order..placed") },
		"no group billing": func(t testing.TB) { posthorntest.State(t, ph, id, "billing") },
		"event 7000 does":  func(t testing.TB) { posthorntest.State(t, ph, 7000, "billing") },
		"one config":       func(t testing.TB) { posthorntest.Open(t, posthorn.Config{}, posthorn.Config{}) },
		"payload":          func(t testing.TB) { posthorntest.Publish(t, ph, posthorn.Message{Type: "a", Payload: func() {}}) },
	} {
		if said := fails(t, f); !strings.Contains(said, want) {
			t.Errorf("messages %q, want %q", said, want)
		}
	}
}

// A database that posthorntest did not create keeps its clock.
func TestClockOfOthers(t *testing.T) {
	t.Parallel()
	server, err := pgx.Connect(t.Context(), posthorntest.ServerURL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close(context.Background())
	name := fmt.Sprintf("somebodys_%d", time.Now().UnixNano())
	if _, err := server.Exec(t.Context(), "create database "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		server, err := pgx.Connect(context.Background(), posthorntest.ServerURL(t))
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close(context.Background())
		server.Exec(context.Background(), "drop database "+name+" with (force)")
	})
	config := server.Config().Copy()
	config.Database = name
	url := fmt.Sprintf("host=%s port=%d user=%s password='%s' dbname=%s", config.Host, config.Port, config.User, config.Password, name)
	ph := posthorntest.Open(t, posthorn.Config{DatabaseURL: url, Migrate: true})
	said := fails(t, func(t testing.TB) { posthorntest.Advance(t, ph, time.Hour) })
	if !strings.Contains(said, "the clock of database somebodys_") {
		t.Errorf("messages: %s", said)
	}
}
