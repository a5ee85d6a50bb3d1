package nats_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

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
	s := open(t, cluster.URL, nats.Config{Replicas: 3, Timeout: 2 * time.Second})
	const streams, size, kills = 3, 400, 3
	var writers sync.WaitGroup
	var enough atomic.Bool
	var written [streams]atomic.Int64
	for stream := range streams {
		writers.Go(func() {
			for b := 0; !enough.Load() && !t.Failed(); b++ {
				persist(t, s, events(fmt.Sprint(stream), 1+b*size, size)...)
				written[stream].Add(size)
				time.Sleep(50 * time.Millisecond) // so that a node which was away can catch up
			}
		})
	}
	defer writers.Wait()
	defer enough.Store(true)
	grown := func() {
		t.Helper()
		for stream := range streams {
			was := written[stream].Load()
			testnats.Eventually(t, func() error {
				if written[stream].Load() < was+2*size {
					return fmt.Errorf("stream %d does not grow", stream)
				}
				return nil
			})
		}
	}
	for kill := range kills {
		grown()
		node := cluster.Servers[kill%3]
		if kill%2 == 0 {
			node = cluster.Leader(t, "posthorn+shop+0")
		}
		node.Kill()
		grown() // two of three carry on
		node.Restart()
		for stream := range streams {
			cluster.AwaitCurrent(t, fmt.Sprintf("posthorn+shop+%d", stream))
		}
	}
	enough.Store(true)
	writers.Wait()
	// Without a majority nothing is written, and says so.
	cluster.Servers[0].Kill()
	cluster.Servers[1].Kill()
	for stream := range streams {
		n := int(written[stream].Load())
		if err := s.Write(t.Context(), batch(events(fmt.Sprint(stream), 1+n, size)...)); err == nil {
			t.Error("one node of three took events")
		}
	}
	cluster.Servers[0].Start()
	cluster.Servers[1].Restart()
	for stream := range streams {
		n := int(written[stream].Add(size))
		persist(t, s, events(fmt.Sprint(stream), 1+n-size, size)...)
	}
	for stream := range streams {
		n := int(written[stream].Load())
		t.Logf("%d events", n)
		wantOrder(t, ids(t, js, fmt.Sprintf("posthorn+shop+%d", stream)), 1, n)
	}
}
