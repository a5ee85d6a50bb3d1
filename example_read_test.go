package posthorn_test

import (
	"fmt"
	"log"

	"github.com/posthorn/posthorn"
)

func ExampleReader() {
	ph, ctx, end := forExample()
	defer end()
	for _, kind := range []string{"order.placed", "order.paid"} {
		if _, err := ph.Publish(ctx, ph.Pool(), posthorn.Message{Type: kind}); err != nil {
			log.Fatal(err)
		}
	}

	reader := ph.Reader(posthorn.ReaderConfig{})
	for e, err := range reader.Events(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.ID, e.Type)
	}
	// Later, perhaps in another process: ReaderConfig{Cursor: cursor}.
	cursor := reader.Cursor()
	fmt.Println(cursor != "")
	// Output:
	// 1 order.placed
	// 2 order.paid
	// true
}

func ExampleClient_DeadLetters() {
	for letter, err := range ph.DeadLetters(ctx, "billing", posthorn.DeadLetterFilter{Type: "order.placed"}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(letter.EventID, letter.Subscription, letter.Attempts, letter.Error)
	}
	n, err := ph.Redrive(ctx, "billing", posthorn.DeadLetterFilter{Error: "bank is closed"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(n, "come again")
}
