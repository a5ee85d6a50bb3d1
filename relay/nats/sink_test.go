package nats_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testentry"
	"github.com/posthorn/posthorn/internal/test/testnats"
	"github.com/posthorn/posthorn/relay/nats"
)

func TestEventsAreWrittenInOrder(t *testing.T) {
	t.Parallel()
	server := testnats.NewAccount(t)
	_, js := testnats.Connect(t, server)
	s := open(t, server.URL, nats.Config{})
	write(t, s, append(events("orders", 1, 5000), events("bills", 1, 3)...)...)
	write(t, s, events("orders", 5001, 1)...)
	wantOrder(t, ids(t, js, "posthorn+shop+orders"), 1, 5001)
	wantOrder(t, ids(t, js, "posthorn+shop+bills"), 1, 3)
}

// Sinks write the form that the first version has written, and sources read it.
func TestFormOfMessages(t *testing.T) {
	t.Parallel()
	for _, example := range testentry.Load(t) {
		want := example.NATS
		written := testnats.NewAccount(t)
		_, js := testnats.Connect(t, written)
		if err := open(t, written.URL, nats.Config{}).Write(t.Context(), example.Batch()); err != nil {
			t.Fatal(err)
		}
		stream, err := js.Stream(t.Context(), want.Stream)
		if err != nil {
			t.Fatal(err)
		}
		m, err := stream.GetMsg(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		got := testentry.Message{
			Stream: want.Stream, Subjects: strings.Join(stream.CachedInfo().Config.Subjects, " "), Subject: m.Subject,
			Headers: map[string]string{}, Body: string(m.Data),
		}
		for name := range m.Header {
			got.Headers[name] = strings.Join(m.Header[name], " ")
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the message that a sink writes (-want +got):\n%s", diff)
		}

		early := testnats.NewAccount(t)
		_, js = testnats.Connect(t, early)
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: want.Stream, Subjects: []string{want.Subjects}}); err != nil {
			t.Fatal(err)
		}
		message := &natsgo.Msg{Subject: want.Subject, Header: natsgo.Header{}, Data: []byte(want.Body)}
		for name, value := range want.Headers {
			message.Header[name] = []string{value}
		}
		if _, err := js.PublishMsg(t.Context(), message); err != nil {
			t.Fatal(err)
		}
		entries := read(t, openSource(t, early.URL), map[string]string{example.Event.Stream: ""}, 1)
		if diff := cmp.Diff([]posthorn.SourceEntry{example.Read("1")}, entries); diff != "" {
			t.Errorf("the message that a source reads (-want +got):\n%s", diff)
		}
	}
}

func TestNodesAreKilled(t *testing.T) {
	t.Parallel()
	cluster := testnats.StartCluster(t, 3)
	_, js := testnats.Connect(t, cluster.Servers...)
	s := open(t, cluster.URL, nats.Config{Replicas: 3, Timeout: 2 * time.Second})
	const streams, size, kills = 3, 400, 3
	var writers sync.WaitGroup
	var stop atomic.Bool
	var wanted atomic.Int64 // writers pause there, so that a node that was down can catch up
	var written [streams]atomic.Int64
	for stream := range streams {
		writers.Go(func() {
			for !stop.Load() && !t.Failed() {
				n := written[stream].Load()
				if n >= wanted.Load() {
					await.Pause()
					continue
				}
				persist(t, s, events(fmt.Sprint(stream), int(n)+1, size)...)
				written[stream].Add(size)
			}
		})
	}
	defer writers.Wait()
	defer stop.Store(true)
	awaitGrowth := func() {
		t.Helper()
		goal := wanted.Load() + 2*size
		wanted.Store(goal + 2*size) // so that they write while the next node is killed
		for stream := range streams {
			await.True(t, fmt.Sprintf("stream %d grows", stream), func() bool { return written[stream].Load() >= goal })
		}
	}
	for kill := range kills {
		awaitGrowth()
		node := cluster.Servers[kill%3]
		if kill%2 == 0 {
			node = cluster.Leader(t, "posthorn+shop+0")
		}
		node.Kill()
		awaitGrowth() // two of three nodes are a majority
		node.Restart()
		for stream := range streams {
			cluster.AwaitCurrent(t, fmt.Sprintf("posthorn+shop+%d", stream))
		}
	}
	stop.Store(true)
	writers.Wait()
	// Without a majority, nothing is written and Write returns an error.
	cluster.Servers[0].Kill()
	cluster.Servers[1].Kill()
	for stream := range streams {
		n := int(written[stream].Load())
		if err := s.Write(t.Context(), batch(events(fmt.Sprint(stream), 1+n, size)...)); err == nil {
			t.Error("one node of three accepted events")
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
