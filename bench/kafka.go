package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/testkafka"
	"github.com/posthorn/posthorn/internal/test/testnats"
	"github.com/posthorn/posthorn/relay"
	"github.com/posthorn/posthorn/relay/kafka"
	"github.com/posthorn/posthorn/relay/nats"
)

var kafkaRows = []row{
	{
		work: "relay to Kafka, three nodes, three replicas", floor: atLeast(0.7), unit: "/s",
		ours: "a relay, from a full log until Kafka has all", peer: "the same records by franz-go, idempotent, acknowledged by all replicas",
		prepare: func(ctx context.Context, b *bench) (ours, peer side) {
			d, cluster := b.spreadLog(ctx), b.startKafka()
			ours = d.relaying(b.events, func(ctx context.Context, name string) (posthorn.Sink, func()) {
				sink := must(kafka.Open(ctx, cluster.URL(), kafka.Config{Prefix: name, Replicas: 3}))
				return sink, func() {
					_ = sink.Close()
					_ = dropTopics(context.WithoutCancel(ctx), cluster)
				}
			})
			return ours, d.producing(cluster, b.events)
		},
	},
	{
		work: "import from Kafka beside JetStream", floor: atLeast(0.8), unit: "/s",
		ours: "an import into an empty log, until it has all that a relay wrote to three nodes of Kafka", peer: "the same from three nodes of JetStream",
		prepare: func(ctx context.Context, b *bench) (ours, peer side) {
			d, cluster, h := b.spreadLog(ctx), b.startKafka(), b.newHost()
			other := hosted(func() *testnats.Cluster { return testnats.StartCluster(h, 3) })
			toKafka, toNATS := kafka.Config{Replicas: 3}, nats.Config{Replicas: 3, Logger: quiet}
			for _, open := range []func() (closableSink, error){
				func() (closableSink, error) { return kafka.Open(ctx, cluster.URL(), toKafka) },
				func() (closableSink, error) { return nats.Open(ctx, other.URL, toNATS) },
			} {
				fill := d.relaying(b.events, func(context.Context, string) (posthorn.Sink, func()) {
					sink := must(open())
					return sink, func() { _ = sink.Close() }
				})
				fill(ctx)
			}
			ours = b.importing(func(ctx context.Context) (closableSource, error) {
				return kafka.OpenSource(ctx, cluster.URL(), "default", toKafka)
			})
			return ours, b.importing(func(ctx context.Context) (closableSource, error) {
				return nats.OpenSource(ctx, other.URL, "default", toNATS)
			})
		},
	},
}

type closableSink interface {
	posthorn.Sink
	io.Closer
}

type closableSource interface {
	posthorn.Source
	io.Closer
}

func (b *bench) startKafka() *testkafka.Cluster {
	h := b.newHost()
	return hosted(func() *testkafka.Cluster { return testkafka.StartCluster(h, 3) })
}

// Skip ends the start of servers that are not installed.
func (h *host) Skip(args ...any) { fail("%s", fmt.Sprint(args...)) }

// producing writes n records from memory, without Posthorn.
func (d *database) producing(cluster *testkafka.Cluster, n int) side {
	all := entriesOf(n)
	return func(ctx context.Context) float64 {
		ctx, cancel := context.WithTimeout(ctx, sideTimeout)
		defer cancel()
		client := must(kgo.NewClient(kgo.SeedBrokers(cluster.Addrs()...), kgo.DisableClientMetrics()))
		defer client.Close()
		names := prefixed(fmt.Sprintf("bare-%d-", d.names.Add(1)))
		check(makeTopics(ctx, client, names))
		defer func() { check(dropTopics(context.WithoutCancel(ctx), cluster)) }()
		var written atomic.Int64
		start := time.Now()
		for at := range all[0] {
			for i, entries := range all {
				if at < len(entries) {
					client.Produce(ctx, recordOf(names[i], i, &entries[at]), func(_ *kgo.Record, err error) {
						if err == nil {
							written.Add(1)
						}
					})
				}
			}
		}
		check(client.Flush(ctx))
		took := time.Since(start)
		expect("records", int(written.Load()), n)
		return float64(n) / took.Seconds()
	}
}

// recordOf returns the record that a relay writes.
func recordOf(topic string, stream int, e *relay.Entry) *kgo.Record {
	r := &kgo.Record{Topic: topic, Value: e.Data}
	for _, h := range [...]struct{ name, value string }{
		{"ce_specversion", "1.0"}, {"ce_id", e.ID}, {"ce_source", e.Source}, {"ce_type", e.Type}, {"ce_time", e.Time},
		{"ce_stream", streamOf(stream)}, {"content-type", "application/json"},
	} {
		r.Headers = append(r.Headers, kgo.RecordHeader{Key: h.name, Value: []byte(h.value)})
	}
	return r
}

// makeTopics makes topics as a relay does.
func makeTopics(ctx context.Context, client *kgo.Client, names []string) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	for _, name := range names {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = name, 1, 3
		inSync := kmsg.NewCreateTopicsRequestTopicConfig()
		inSync.Name, inSync.Value = "min.insync.replicas", kmsg.StringPtr("2")
		t.Configs = append(t.Configs, inSync)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		err = errors.Join(err, kerr.ErrorForCode(t.ErrorCode))
	}
	return err
}

// dropTopics deletes all topics that are not Kafka's own.
func dropTopics(ctx context.Context, cluster *testkafka.Cluster) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(cluster.Addrs()...), kgo.DisableClientMetrics())
	if err != nil {
		return err
	}
	defer client.Close()
	found, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, client)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = 10_000
	for _, t := range found.Topics {
		if !t.IsInternal {
			rt := kmsg.NewDeleteTopicsRequestTopic()
			rt.Topic = t.Topic
			req.Topics, req.TopicNames = append(req.Topics, rt), append(req.TopicNames, *t.Topic)
		}
	}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	for _, t := range resp.Topics {
		err = errors.Join(err, kerr.ErrorForCode(t.ErrorCode))
	}
	return err
}

// importing imports all events of a source into an empty log. It measures from the start of Run until they are
// committed.
func (b *bench) importing(open func(ctx context.Context) (closableSource, error)) side {
	return func(ctx context.Context) float64 {
		ctx, cancel := context.WithTimeout(ctx, sideTimeout)
		defer cancel()
		d := b.server.newDatabase(ctx)
		defer d.drop()
		// A copied database has the same origin, and a log does not import its own events.
		d.exec(ctx, "update posthorn.log_origin set origin = gen_random_uuid()")
		source := must(open(ctx))
		defer source.Close()
		ph := d.openClient(ctx)
		ph.Import("bench", posthorn.ImportConfig{}, source)
		start := time.Now()
		stop := inBackground(ctx, ph)
		err := d.awaitImport(ctx, b.events)
		took := time.Since(start)
		check(errors.Join(err, caught(stop)))
		return float64(b.events) / took.Seconds()
	}
}

// awaitImport waits until n events are imported.
func (d *database) awaitImport(ctx context.Context, n int) error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		imported := 0
		err := d.QueryRow(ctx, "select coalesce(sum(imported), 0) from posthorn.import_stream_status").Scan(&imported)
		if err != nil || imported == n {
			return err
		}
		if imported > n {
			return fmt.Errorf("%d events instead of %d", imported, n)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
}
