package posthorn_test

import (
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/posthorn/posthorn"
)

func ExampleGroup_Fetch() {
	ph, ctx, end := forExample()
	defer end()
	billing := ph.Group("billing", posthorn.GroupConfig{Start: posthorn.Beginning})
	if _, err := ph.Publish(ctx, ph.Pool(), posthorn.Message{Type: "order.placed", Key: "7"}); err != nil {
		log.Fatal(err)
	}

	deliveries, err := billing.Fetch(ctx, 10) // waits until there is something
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
			continue // it tries again
		}
		var order Order
		if err = d.Decode(&order); err != nil {
			err = d.Term(ctx, err) // it will never decode
		} else if err = theBank.Charge(ctx, order.ID, order.Cents); err != nil {
			err = d.Nack(ctx, err) // another attempt, after the group's delay
		} else {
			err = d.Ack(ctx)
		}
		if errors.Is(err, posthorn.ErrLeaseLost) {
			log.Print("too late: somebody else has it")
		}
	}
}

func ExampleDelivery_Extend() {
	billing := ph.Group("billing", posthorn.GroupConfig{LeaseFor: time.Minute})
	deliveries, err := billing.Fetch(ctx, 1)
	if err != nil {
		log.Fatal(err)
	}
	// This one takes longer.
	if err := deliveries[0].Extend(ctx, time.Hour); err != nil {
		log.Fatal(err)
	}
}
