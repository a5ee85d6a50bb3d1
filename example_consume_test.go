package posthorn_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"os/signal"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn"
)

// Values that the examples use.
var (
	ph          *posthorn.Client
	ctx         context.Context
	errDeclined = errors.New("card declined")
	errNoCard   = errors.New("no such card")
)

// Order is a payload.
type Order struct {
	ID    string
	Cents int
}

type bank struct{}

func (bank) Charge(context.Context, string, int) error { return nil }

var theBank bank

func ExampleGroup_Handle() {
	billing := ph.Group("billing", posthorn.GroupConfig{})
	billing.Handle("charge", "order.placed", func(ctx context.Context, e posthorn.Event) error {
		var order Order
		if err := e.Decode(&order); err != nil {
			return posthorn.Permanent(err)
		}
		return theBank.Charge(ctx, order.ID, order.Cents)
	})
}

func ExampleOn() {
	billing := ph.Group("billing", posthorn.GroupConfig{})
	posthorn.On(billing, "charge", "order.placed", func(ctx context.Context, _ posthorn.Event, order Order) error {
		return theBank.Charge(ctx, order.ID, order.Cents)
	})
}

func ExampleGroup_HandleTx() {
	ledger := ph.Group("ledger", posthorn.GroupConfig{})
	ledger.HandleTx("book", "order.placed", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		if _, err := tx.Exec(ctx, "insert into bookings (order_id) values ($1)", e.Key); err != nil {
			return err
		}
		_, err := ph.Publish(ctx, tx, posthorn.Message{Type: "order.booked", Key: e.Key})
		return err
	})
}

func ExampleOnTx() {
	ledger := ph.Group("ledger", posthorn.GroupConfig{})
	posthorn.OnTx(ledger, "book", "order.placed", func(ctx context.Context, tx pgx.Tx, _ posthorn.Event, order Order) error {
		_, err := tx.Exec(ctx, "insert into bookings (order_id, cents) values ($1, $2)", order.ID, order.Cents)
		return err
	})
}

func ExampleGroup_HandleBatchTx() {
	search := ph.Group("search", posthorn.GroupConfig{BatchSize: 500})
	search.HandleBatchTx("index", "order.>", func(ctx context.Context, tx pgx.Tx, events []posthorn.Event) error {
		rows := make([][]any, len(events))
		for i, e := range events {
			rows[i] = []any{e.Key, e.Payload}
		}
		_, err := tx.CopyFrom(ctx, pgx.Identifier{"search_input"}, []string{"order_id", "document"}, pgx.CopyFromRows(rows))
		return err
	})
}

func ExampleEventErrors() {
	mail := ph.Group("mail", posthorn.GroupConfig{})
	mail.HandleBatch("send", "order.placed", func(ctx context.Context, events []posthorn.Event) error {
		failed := posthorn.EventErrors{}
		for _, e := range events {
			if err := theBank.Charge(ctx, e.Key, 0); err != nil {
				failed[e.ID] = err
			}
		}
		if len(failed) > 0 {
			return failed // all other events are done
		}
		return nil
	})
}

func ExampleMiddleware() {
	timed := func(next posthorn.Handler) posthorn.Handler {
		return func(ctx context.Context, e posthorn.Event) error {
			started := time.Now()
			err := next(ctx, e)
			slog.InfoContext(ctx, "handled", "event", e.ID, "took", time.Since(started), "error", err)
			return err
		}
	}
	ph.Group("billing", posthorn.GroupConfig{Middleware: []posthorn.Middleware{timed}})
}

// A handler that was renamed takes over what is owed to it under its former name.
func ExampleGroupConfig_renamed() {
	ledger := ph.Group("ledger", posthorn.GroupConfig{
		Formerly: map[string][]string{"book-order": {"book"}}, // the present name, and the names before
	})
	ledger.HandleTx("book-order", "order.placed", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		_, err := tx.Exec(ctx, "insert into bookings (order_id) values ($1)", e.Key)
		return err
	})
}

// As a bus with one queue.
func ExampleGroupConfig_asABus() {
	api := ph.Group("api", posthorn.GroupConfig{
		Attempts:            1,                // the first failure makes a dead letter
		SharedTx:            true,             // all handlers of an event in one transaction
		DeadLetterUnhandled: true,             // no handler: a dead letter
		LeaseFor:            30 * time.Second, // the visibility timeout
		BatchSize:           10,
		IdlePoll:            time.Second,
	})
	api.HandleTx("record", "order.placed", func(ctx context.Context, tx pgx.Tx, e posthorn.Event) error {
		_, err := tx.Exec(ctx, "insert into bookings (order_id) values ($1)", e.Key)
		return err
	})
}

func ExampleOrder() {
	// Events of one order run one after another, those of different orders at the same time.
	ph.Group("shipping", posthorn.GroupConfig{Order: posthorn.OrderKey, Slots: 64})
}

func ExampleClient_Run() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	ph, err := posthorn.Open(ctx, posthorn.Config{DatabaseURL: os.Getenv("DATABASE_URL"), Namespace: "shop"})
	if err != nil {
		log.Fatal(err)
	}
	defer ph.Close()
	// register groups and handlers here
	if err := ph.Run(ctx); err != nil {
		log.Fatal(err)
	}
}

func ExamplePermanent() {
	billing := ph.Group("billing", posthorn.GroupConfig{})
	billing.Handle("charge", "order.placed", func(ctx context.Context, e posthorn.Event) error {
		err := theBank.Charge(ctx, e.Key, 1990)
		switch {
		case errors.Is(err, errNoCard):
			return posthorn.Permanent(err) // a dead letter at once
		case errors.Is(err, errDeclined):
			return posthorn.RetryAfter(24*time.Hour, err)
		default:
			return err // after the group's delay
		}
	})
}

func ExampleGroupConfig_delays() {
	ph.Group("billing", posthorn.GroupConfig{
		// Four attempts: at once, and after each of these delays.
		Delays: []time.Duration{time.Second, time.Minute, time.Hour},
	})
	ph.Group("ledger", posthorn.GroupConfig{
		Attempts: posthorn.Unlimited,
		Backoff:  posthorn.Backoff{From: time.Second, To: time.Hour, Factor: 2},
	})
}

func ExampleClient_Admin_outcomes() {
	outcomes, err := ph.Admin().Outcomes(ctx, 42)
	if err != nil {
		log.Fatal(err)
	}
	for _, o := range outcomes {
		log.Println(o.Group, o.State, o.Subscription, o.Attempts, o.Error)
	}
}

func ExampleClient_Admin_seek() {
	yesterday := time.Now().Add(-24 * time.Hour)
	if err := ph.Admin().Seek(ctx, "search", posthorn.At(yesterday)); err != nil {
		log.Fatal(err)
	}
}

func ExampleGroup_Fetch() {
	ph, shop, ctx, end := forExample("fetch.md")
	defer end()
	billing := ph.Group("billing", posthorn.GroupConfig{Start: posthorn.Beginning})
	if _, err := shop.Publish(ctx, shop.Pool(), posthorn.Message{Type: "order.placed", Key: "7"}); err != nil {
		log.Fatal(err)
	}

	deliveries, err := billing.Fetch(ctx, 10) // waits until there is an event
	if err != nil {
		log.Fatal(err)
	}
	for _, d := range deliveries {
		fmt.Println(d.Type, d.Key)
		if err := d.Ack(ctx); err != nil {
			log.Print(err)
		}
	}
	// Output: order.placed 7
}

func ExampleGroup_Deliveries() {
	billing := ph.Group("billing", posthorn.GroupConfig{LeaseFor: time.Minute})
	for d, err := range billing.Deliveries(ctx) {
		if err != nil {
			log.Print(err)
			continue // the loop tries again
		}
		var order Order
		if err = d.Decode(&order); err != nil {
			err = d.Term(ctx, err) // another attempt would not help
		} else if err = theBank.Charge(ctx, order.ID, order.Cents); err != nil {
			err = d.Nack(ctx, err) // another attempt follows after the group's delay
		} else {
			err = d.Ack(ctx)
		}
		if errors.Is(err, posthorn.ErrLeaseLost) {
			log.Print("too late: another worker has the event")
		}
	}
}

func ExampleDelivery_Extend() {
	billing := ph.Group("billing", posthorn.GroupConfig{LeaseFor: time.Minute})
	deliveries, err := billing.Fetch(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	// This event takes longer than LeaseFor.
	if err := deliveries[0].Extend(ctx, time.Hour); err != nil {
		log.Fatal(err)
	}
}

func ExampleGroup_Subscribe() {
	billing := ph.Group("billing", posthorn.GroupConfig{})
	billing.Subscribe("web", posthorn.Subscription{
		Filter: posthorn.Filter{Types: []string{"order.*"}, TagsAny: []string{"web"}},
	})
	billing.Handle("web", posthorn.Subscribed, func(ctx context.Context, e posthorn.Event) error {
		return theBank.Charge(ctx, e.Key, 1990)
	})
}

func ExampleGroup_Subscribe_condition() {
	billing := ph.Group("billing", posthorn.GroupConfig{})
	billing.Subscribe("large", posthorn.Subscription{
		Condition: "e.type = 'order.placed' and (e.payload->>'cents')::int > (s.params->>'over')::int",
		Params:    map[string]int{"over": 100_000},
	})
	billing.Handle("large", posthorn.Subscribed, func(ctx context.Context, e posthorn.Event) error {
		return theBank.Charge(ctx, e.Key, 1990)
	})
}

func ExampleSubscription_expiry() {
	live := ph.Group("live", posthorn.GroupConfig{})
	live.Subscribe("dashboard", posthorn.Subscription{
		Filter:      posthorn.Filter{Types: []string{"order.>"}},
		ExpireAfter: 15 * time.Minute,
	})
	for d, err := range live.Deliveries(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		log.Println(d.Type, d.Subscriptions, d.Ack(ctx))
	}
}

func ExampleClient_PublishTo() {
	_, err := ph.PublishTo(ctx, ph.Pool(), "billing", "web", posthorn.Message{Type: "order.recheck", Key: "7"})
	if err != nil {
		log.Fatal(err)
	}
}

func ExampleClient_Admin_subscriptions() {
	subscriptions, err := ph.Admin().Subscriptions(ctx, "billing")
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range subscriptions {
		log.Println(s.Name, s.State, s.Error)
	}
}
