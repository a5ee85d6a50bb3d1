package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	goredis "github.com/redis/go-redis/v9"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/testnats"
	"github.com/posthorn/posthorn/internal/test/testredis"
	"github.com/posthorn/posthorn/relay"
	"github.com/posthorn/posthorn/relay/nats"
	"github.com/posthorn/posthorn/relay/redis"
)

var brokerRows = []row{
	{
		work: "relay to Redis Cluster, three masters", floor: atLeast(0.7), unit: "/s",
		ours: "a relay, from a full log until Redis has all", peer: "the same entries by go-redis, pipelines of 1,000 XADD, 3 at a time",
		prepare: func(ctx context.Context, b *bench) (ours, peer side) {
			d, h := b.spreadLog(ctx), b.newHost()
			cluster := hosted(func() *testredis.Cluster { return testredis.StartCluster(h, 3, false) })
			client := cluster.Client(h)
			ours = d.relaying(b.events, func(ctx context.Context, name string) (posthorn.Sink, func()) {
				sink := must(redis.Open(ctx, cluster.URL(), redis.Config{Prefix: name}))
				return sink, func() {
					_ = sink.Close()
					client.Del(context.WithoutCancel(ctx), prefixed(name)...)
				}
			})
			return ours, d.adding(client, b.events)
		},
	},
	{
		work: "relay to JetStream, three nodes, three replicas", floor: atLeast(0.7), unit: "/s",
		ours: "a relay, from a full log until JetStream has all", peer: "the same messages by nats.go, PublishMsgAsync, 4,000 on their way",
		prepare: func(ctx context.Context, b *bench) (ours, peer side) {
			d, h := b.spreadLog(ctx), b.newHost()
			cluster := hosted(func() *testnats.Cluster { return testnats.StartCluster(h, 3) })
			ours = d.relaying(b.events, func(ctx context.Context, name string) (posthorn.Sink, func()) {
				sink := must(nats.Open(ctx, cluster.URL, nats.Config{Prefix: name, Replicas: 3, Logger: quiet}))
				return sink, func() {
					_ = sink.Close()
					dropStreams(context.WithoutCancel(ctx), cluster.URL)
				}
			})
			return ours, d.sending(cluster.URL, b.events)
		},
	},
}

// spread is the number of streams of the events in the rows of brokers.
const spread = 12

func prefixed(prefix string) []string {
	names := make([]string, spread)
	for i := range names {
		names[i] = fmt.Sprintf("%sstream-%d", prefix, i)
	}
	return names
}

// spreadLog returns a log whose events alternate between several streams.
func (b *bench) spreadLog(ctx context.Context) *database {
	d := b.newDatabase(ctx)
	for done := 0; done < b.events; done += batchSize {
		n := min(batchSize, b.events-done)
		streams := make([]string, n)
		for i := range streams {
			streams[i] = streamOf(done + i)
		}
		d.exec(ctx, "select posthorn.publish_batch('default', $1::text[], $2::json[], $3::text[])",
			slices.Repeat([]string{eventType}, n), slices.Repeat([]json.RawMessage{json.RawMessage(payload)}, n), streams)
	}
	d.exec(ctx, "vacuum analyze posthorn.events")
	return d
}

func streamOf(i int) string { return fmt.Sprintf("stream-%d", i%spread) }

// entriesOf returns, by stream, the entries that a relay writes of such a log.
func entriesOf(n int) [][]relay.Entry {
	source := relay.Source("00000000-0000-0000-0000-000000000000", "default")
	all := make([][]relay.Entry, spread)
	for i := range n {
		e := posthorn.Event{ID: int64(i + 1), Type: eventType, Payload: []byte(payload), Metadata: []byte("{}"), PublishedAt: time.Now()}
		all[i%spread] = append(all[i%spread], relay.NewEntry(source, &e))
	}
	return all
}

// relaying relays a whole log of n events. It measures from the start of Run until
// the sink has the last one.
func (d *database) relaying(n int, open func(ctx context.Context, prefix string) (posthorn.Sink, func())) side {
	return func(ctx context.Context) float64 {
		ctx, cancel := context.WithTimeout(ctx, sideTimeout)
		defer cancel()
		name := fmt.Sprintf("relay-%d", d.names.Add(1))
		sink, end := open(ctx, name)
		defer end()
		ph := d.client(ctx, posthorn.Config{})
		defer ph.Close()
		took, _ := untilDone(ctx, ph, n, func(done func()) {
			ph.Relay(name, posthorn.RelayConfig{}, &countedSink{Sink: sink, written: done})
		})
		return float64(n) / took.Seconds()
	}
}

// countedSink counts the written entries. If a batch fails in part, it counts the
// entries that were written, since they are not appended again.
type countedSink struct {
	posthorn.Sink
	written func()
}

func (s *countedSink) Write(ctx context.Context, batch posthorn.SinkBatch) error {
	err := s.Sink.Write(ctx, batch)
	var failed posthorn.EventErrors
	if err != nil && !errors.As(err, &failed) {
		return err
	}
	for _, e := range batch.Events {
		if failed[e.ID] == nil {
			s.written()
		}
	}
	return err
}

// adding writes n entries from memory, without Posthorn.
func (d *database) adding(client *goredis.ClusterClient, n int) side {
	all := entriesOf(n)
	return func(ctx context.Context) float64 {
		names := prefixed(fmt.Sprintf("bare-%d", d.names.Add(1)))
		defer client.Del(context.WithoutCancel(ctx), names...)
		start := time.Now()
		eachOf(ctx, 3, spread, func(ctx context.Context, i int) {
			for entries := range slices.Chunk(all[i], batchSize) {
				pipe := client.Pipeline()
				for _, e := range entries {
					pipe.XAdd(ctx, &goredis.XAddArgs{Stream: names[i], Values: []any{
						"specversion", "1.0", relay.ID, e.ID, relay.SourceName, e.Source, relay.Type, e.Type, relay.Time, e.Time,
						"datacontenttype", "application/json", relay.Data, e.Data,
					}})
				}
				must(pipe.Exec(ctx))
			}
		})
		took := time.Since(start)
		written := 0
		for _, name := range names {
			written += int(client.XLen(ctx, name).Val())
		}
		expect("entries", written, n)
		return float64(n) / took.Seconds()
	}
}

// sending publishes n messages from memory, without Posthorn.
func (d *database) sending(url string, n int) side {
	all := entriesOf(n)
	return func(ctx context.Context) float64 {
		ctx, cancel := context.WithTimeout(ctx, sideTimeout)
		defer cancel()
		conn := must(natsgo.Connect(url))
		defer conn.Close()
		js := must(jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(4000)))
		defer dropStreams(context.WithoutCancel(ctx), url)
		names := prefixed(fmt.Sprintf("bare-%d-", d.names.Add(1)))
		for _, name := range names {
			must(js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}, Replicas: 3}))
		}
		start := time.Now()
		for at := range all[0] {
			for i, entries := range all {
				if at >= len(entries) {
					continue
				}
				e := &entries[at]
				must(js.PublishMsgAsync(&natsgo.Msg{Subject: names[i] + "." + e.Type, Data: e.Data, Header: natsgo.Header{
					"Nats-Msg-Id": {e.ID}, "ce-specversion": {"1.0"}, "ce-id": {e.ID}, "ce-source": {e.Source}, "ce-type": {e.Type},
					"ce-time": {e.Time}, "content-type": {"application/json"},
				}}, jetstream.WithStallWait(sideTimeout)))
			}
		}
		select {
		case <-js.PublishAsyncComplete():
		case <-ctx.Done():
			check(ctx.Err())
		}
		took := time.Since(start)
		written := 0
		for _, name := range names {
			written += int(must(js.Stream(ctx, name)).CachedInfo().State.Msgs)
		}
		expect("messages", written, n)
		return float64(n) / took.Seconds()
	}
}

// dropStreams makes room for the next round. Streams that it leaves end with the servers.
func dropStreams(ctx context.Context, url string) {
	_ = caught(func() {
		conn := must(natsgo.Connect(url))
		defer conn.Close()
		js := must(jetstream.New(conn))
		for name := range js.StreamNames(ctx).Name() {
			check(js.DeleteStream(ctx, name))
		}
	})
}

// host implements the testing interface that the test servers need, outside of a
// test.
type host struct {
	testing.TB
	ctx  context.Context
	ends []func()
}

// newHost makes a host whose servers are stopped at the end of the row.
func (b *bench) newHost() *host {
	h := &host{ctx: context.Background()}
	b.atEnd(h.end)
	return h
}

// hosted starts servers, and turns the failure of their host into a skip.
func hosted[S any](start func() S) (servers S) {
	if err := caught(func() { servers = start() }); err != nil {
		check(skip(err.Error()))
	}
	return servers
}

func (h *host) end() {
	for _, end := range slices.Backward(h.ends) {
		end()
	}
}

func (h *host) Name() string                      { return "bench" }
func (h *host) Helper()                           {}
func (h *host) Failed() bool                      { return false }
func (h *host) Context() context.Context          { return h.ctx }
func (h *host) Cleanup(end func())                { h.ends = append(h.ends, end) }
func (h *host) Log(...any)                        {}
func (h *host) Logf(string, ...any)               {}
func (h *host) Error(args ...any)                 { fail("%s", fmt.Sprint(args...)) }
func (h *host) Errorf(format string, args ...any) { fail(format, args...) }
func (h *host) Fatal(args ...any)                 { fail("%s", fmt.Sprint(args...)) }
func (h *host) Fatalf(format string, args ...any) { fail(format, args...) }
