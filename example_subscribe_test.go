package posthorn_test

import (
	"context"
	"log"
	"time"

	"github.com/posthorn/posthorn"
)

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

func ExampleClient_Subscriptions() {
	subscriptions, err := ph.Subscriptions(ctx, "billing")
	if err != nil {
		log.Fatal(err)
	}
	for _, s := range subscriptions {
		log.Println(s.Name, s.State, s.Error)
	}
}
