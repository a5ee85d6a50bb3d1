package kafka_test

import (
	"context"
	"log"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/relay/kafka"
)

var (
	ctx   = context.Background()
	batch posthorn.SinkBatch
)

func ExampleOpen() {
	sink, err := kafka.Open(ctx, "kafka+ssl://kafka1:9093,kafka2:9093?sasl=scram-sha-512&replicas=3", kafka.Config{
		Relay: "to-kafka", // the name of the relay
	})
	if err != nil {
		log.Fatal(err)
	}
	defer sink.Close()
	if err := sink.Write(ctx, batch); err != nil { // a relay does this
		log.Fatal(err, posthorn.Hint(err))
	}
}
