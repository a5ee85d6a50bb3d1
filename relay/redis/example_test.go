package redis_test

import (
	"context"
	"log"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/relay/redis"
)

var (
	ctx   = context.Background()
	batch posthorn.SinkBatch
)

func ExampleOpen() {
	sink, err := redis.Open(ctx, "redis-sentinel://redis1,redis2,redis3/main?prefix=shop:", redis.Config{
		Replicas: 1,
		Keep:     1_000_000, // entries of each stream; unread entries of consumer groups are kept as well
	})
	if err != nil {
		log.Fatal(err)
	}
	defer sink.Close()
	if err := sink.Write(ctx, batch); err != nil { // a relay does this
		log.Fatal(err, posthorn.Hint(err))
	}
}
