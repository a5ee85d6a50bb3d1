package nats_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/posthorn/posthorn/internal/testnats"
	"github.com/posthorn/posthorn/relay/nats"
)

func TestEventsAreWrittenInOrder(t *testing.T) {
	t.Parallel()
	server := testnats.Start(t)
	_, js := testnats.Connect(t, server)
	s := open(t, server.URL, nats.Config{})
	write(t, s, append(events("orders", 1, 5000), events("bills", 1, 3)...)...)
	write(t, s, events("orders", 5001, 1)...)
	wantOrder(t, ids(t, js, "posthorn+shop+orders"), 1, 5001)
	wantOrder(t, ids(t, js, "posthorn+shop+bills"), 1, 3)
}

func TestNodesAreKilled(t *testing.T) {
	t.Parallel()
	cluster := testnats.StartCluster(t, 3)
	_, js := testnats.Connect(t, cluster.Servers...)
	s := open(t, cluster.URL, nats.Config{Replicas: 3})
	const streams, batches, size = 3, 60, 400
	var written sync.WaitGroup
	over := make(chan struct{})
	for stream := range streams {
		written.Go(func() {
			for b := range batches {
				persist(t, s, events(fmt.Sprint(stream), 1+b*size, size)...)
			}
		})
	}
	go func() { written.Wait(); close(over) }()
	kills := 0
	for running := true; running; {
		select {
		case <-over:
			running = false
		default:
			node := cluster.Servers[rand.N(3)]
			node.Kill()
			node.Restart()
			kills++
		}
	}
	t.Logf("%d kills", kills)
	for stream := range streams {
		wantOrder(t, ids(t, js, fmt.Sprintf("posthorn+shop+%d", stream)), 1, batches*size)
	}
}
