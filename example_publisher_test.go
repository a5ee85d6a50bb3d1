package posthorn_test

import (
	"fmt"
	"log"

	"github.com/posthorn/posthorn"
)

func ExamplePublisher() {
	ph, ctx, end := forExample()
	defer end()

	publisher := ph.Publisher(posthorn.PublisherConfig{})
	for reading := range 10_000 {
		err := publisher.PublishAsync(ctx, posthorn.Message{Type: "sensor.read", Payload: reading}, func(_ int64, err error) {
			if err != nil {
				log.Print(err) // nobody else hears of it
			}
		})
		if err != nil {
			log.Fatal(err)
		}
	}
	publisher.Close() // when all of them are written

	n := 0
	for _, err := range ph.Reader(posthorn.ReaderConfig{}).Events(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		n++
	}
	fmt.Println(n, "events")
	// Output: 10000 events
}

func ExamplePublisher_Publish() {
	ph, ctx, end := forExample()
	defer end()

	publisher := ph.Publisher(posthorn.PublisherConfig{})
	defer publisher.Close()
	// In a handler of requests, say: those that run at the same time share a commit.
	ids, err := publisher.Publish(ctx, posthorn.Message{Type: "page.viewed", Key: "/"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(ids), "event")
	// Output: 1 event
}
