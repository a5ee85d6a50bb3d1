package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
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
		prepare: func(ctx context.Context, b *bench) (ours, peer side, err error) {
			d, err := b.spreadLog(ctx)
			if err != nil {
				return nil, nil, err
			}
			h := b.newHost()
			cluster, err := hosted(h, func() *testredis.Cluster { return testredis.StartCluster(h, 3, false) })
			if err != nil {
				return nil, nil, err
			}
			client := cluster.Client(h)
			ours = d.relaying(b.events, func(ctx context.Context, name string) (posthorn.Sink, func(), error) {
				sink, err := redis.Open(ctx, cluster.URL(), redis.Config{Prefix: name})
				if err != nil {
					return nil, nil, err
				}
				return sink, func() {
					_ = sink.Close()
					client.Del(context.WithoutCancel(ctx), prefixed(name)...)
				}, nil
			})
			return ours, d.adding(client, b.events), nil
		},
	},
	{
		work: "relay to JetStream, three nodes, three replicas", floor: atLeast(0.7), unit: "/s",
		ours: "a relay, from a full log until JetStream has all", peer: "the same messages by nats.go, PublishMsgAsync, 4,000 on their way",
		prepare: func(ctx context.Context, b *bench) (ours, peer side, err error) {
			d, err := b.spreadLog(ctx)
			if err != nil {
				return nil, nil, err
			}
			h := b.newHost()
			cluster, err := hosted(h, func() *testnats.Cluster { return testnats.StartCluster(h, 3) })
			if err != nil {
				return nil, nil, err
			}
			ours = d.relaying(b.events, func(ctx context.Context, name string) (posthorn.Sink, func(), error) {
				sink, err := nats.Open(ctx, cluster.URL, nats.Config{Prefix: name, Replicas: 3, Logger: quiet})
				if err != nil {
					return nil, nil, err
				}
				return sink, func() {
					_ = sink.Close()
					_ = dropStreams(context.WithoutCancel(ctx), cluster.URL)
				}, nil
			})
			return ours, d.sending(cluster.URL, b.events), nil
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
func (b *bench) spreadLog(ctx context.Context) (*database, error) {
	d, err := b.newDatabase(ctx)
	if err != nil {
		return nil, err
	}
	for done := 0; done < b.events; done += batchSize {
		n := min(batchSize, b.events-done)
		streams := make([]string, n)
		for i := range streams {
			streams[i] = streamOf(done + i)
		}
		_, err := d.Exec(ctx, "select posthorn.publish_batch('default', $1::text[], $2::json[], $3::text[])",
			slices.Repeat([]string{eventType}, n), slices.Repeat([]json.RawMessage{json.RawMessage(payload)}, n), streams)
		if err != nil {
			return nil, err
		}
	}
	_, err = d.Exec(ctx, "vacuum analyze posthorn.events")
	return d, err
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
func (d *database) relaying(n int, open func(ctx context.Context, prefix string) (posthorn.Sink, func(), error)) side {
	return func(ctx context.Context) (float64, error) {
		ctx, cancel := context.WithTimeout(ctx, sideTimeout)
		defer cancel()
		name := fmt.Sprintf("relay-%d", d.names.Add(1))
		sink, end, err := open(ctx, name)
		if err != nil {
			return 0, err
		}
		defer end()
		ph, err := posthorn.Open(ctx, posthorn.Config{DatabaseURL: d.url(), Logger: quiet})
		if err != nil {
			return 0, err
		}
		defer ph.Close()
		counted := &countedSink{Sink: sink, written: newCounter(n)}
		ph.Relay(name, posthorn.RelayConfig{}, counted)
		running, stop := context.WithCancel(ctx)
		defer stop()
		ended := make(chan error, 1)
		start := time.Now()
		go func() { ended <- ph.Run(running) }()
		err = counted.written.wait(ctx)
		took := time.Since(start)
		stop()
		return float64(n) / took.Seconds(), errors.Join(err, <-ended)
	}
}

// countedSink counts the written entries. If a batch fails in part, it counts the
// entries that were written, since they are not appended again.
type countedSink struct {
	posthorn.Sink
	written *counter
}

func (s *countedSink) Write(ctx context.Context, batch posthorn.SinkBatch) error {
	err := s.Sink.Write(ctx, batch)
	var failed posthorn.EventErrors
	if err != nil && !errors.As(err, &failed) {
		return err
	}
	for _, e := range batch.Events {
		if failed[e.ID] == nil {
			s.written.add()
		}
	}
	return err
}

// adding writes n entries from memory, without Posthorn.
func (d *database) adding(client *goredis.ClusterClient, n int) side {
	all := entriesOf(n)
	return func(ctx context.Context) (float64, error) {
		names := prefixed(fmt.Sprintf("bare-%d", d.names.Add(1)))
		defer client.Del(context.WithoutCancel(ctx), names...)
		start := time.Now()
		err := eachStream(3, func(i int) error {
			for entries := range slices.Chunk(all[i], batchSize) {
				pipe := client.Pipeline()
				for _, e := range entries {
					pipe.XAdd(ctx, &goredis.XAddArgs{Stream: names[i], Values: []any{
						"specversion", "1.0", relay.ID, e.ID, relay.SourceName, e.Source, relay.Type, e.Type, relay.Time, e.Time,
						"datacontenttype", "application/json", relay.Data, e.Data,
					}})
				}
				if _, err := pipe.Exec(ctx); err != nil {
					return err
				}
			}
			return nil
		})
		took := time.Since(start)
		written := int64(0)
		for _, name := range names {
			written += client.XLen(ctx, name).Val()
		}
		if err == nil && written != int64(n) {
			err = fmt.Errorf("%d entries instead of %d", written, n)
		}
		return float64(n) / took.Seconds(), err
	}
}

// eachStream calls do for every stream, atOnce calls at a time.
func eachStream(atOnce int, do func(i int) error) error {
	errs := make([]error, spread)
	var workers sync.WaitGroup
	for w := range atOnce {
		workers.Go(func() {
			for i := w; i < spread; i += atOnce {
				errs[i] = do(i)
			}
		})
	}
	workers.Wait()
	return errors.Join(errs...)
}

// sending publishes n messages from memory, without Posthorn.
func (d *database) sending(url string, n int) side {
	all := entriesOf(n)
	return func(ctx context.Context) (speed float64, err error) {
		ctx, cancel := context.WithTimeout(ctx, sideTimeout)
		defer cancel()
		conn, err := natsgo.Connect(url)
		if err != nil {
			return 0, err
		}
		defer conn.Close()
		js, err := jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(4000))
		if err != nil {
			return 0, err
		}
		defer dropStreams(context.WithoutCancel(ctx), url)
		names := prefixed(fmt.Sprintf("bare-%d-", d.names.Add(1)))
		for _, name := range names {
			if _, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: name, Subjects: []string{name + ".>"}, Replicas: 3}); err != nil {
				return 0, err
			}
		}
		start := time.Now()
		for at := range all[0] {
			for i, entries := range all {
				if at >= len(entries) {
					continue
				}
				e := &entries[at]
				_, err := js.PublishMsgAsync(&natsgo.Msg{Subject: names[i] + "." + e.Type, Data: e.Data, Header: natsgo.Header{
					"Nats-Msg-Id": {e.ID}, "ce-specversion": {"1.0"}, "ce-id": {e.ID}, "ce-source": {e.Source}, "ce-type": {e.Type},
					"ce-time": {e.Time}, "content-type": {"application/json"},
				}}, jetstream.WithStallWait(sideTimeout))
				if err != nil {
					return 0, err
				}
			}
		}
		select {
		case <-js.PublishAsyncComplete():
		case <-ctx.Done():
			return 0, ctx.Err()
		}
		took := time.Since(start)
		written := uint64(0)
		for _, name := range names {
			stream, err := js.Stream(ctx, name)
			if err != nil {
				return 0, err
			}
			written += stream.CachedInfo().State.Msgs
		}
		if written != uint64(n) {
			return 0, fmt.Errorf("%d messages instead of %d", written, n)
		}
		return float64(n) / took.Seconds(), nil
	}
}

func dropStreams(ctx context.Context, url string) error {
	conn, err := natsgo.Connect(url)
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	for name := range js.StreamNames(ctx).Name() {
		if err := js.DeleteStream(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

// host implements the testing interface that the test servers need, outside of a
// test.
type host struct {
	testing.TB
	ctx  context.Context
	ends []func()
}

// failure is the panic value of a failed host.
type failure string

func (f failure) Error() string { return string(f) }

// newHost makes a host whose servers are stopped at the end of the row.
func (b *bench) newHost() *host {
	h := &host{ctx: context.Background()}
	b.temporary[len(b.temporary)-1].atEnd(h.end)
	return h
}

// hosted starts servers, and returns a failure of the host as an error.
func hosted[S any](h *host, start func() S) (servers S, err error) {
	defer func() {
		switch problem := recover().(type) {
		case nil:
		case failure:
			err = skip(problem)
		default:
			panic(problem)
		}
	}()
	return start(), nil
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
func (h *host) Error(args ...any)                 { panic(failure(fmt.Sprint(args...))) }
func (h *host) Errorf(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }
func (h *host) Fatal(args ...any)                 { panic(failure(fmt.Sprint(args...))) }
func (h *host) Fatalf(format string, args ...any) { panic(failure(fmt.Sprintf(format, args...))) }
