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
		prepare: func(ctx context.Context, b *bench) (ours, peer side, err error) {
			d, err := b.spreadLog(ctx)
			if err != nil {
				return nil, nil, err
			}
			cluster, err := b.startKafka()
			if err != nil {
				return nil, nil, err
			}
			ours = d.relaying(b.events, func(ctx context.Context, name string) (posthorn.Sink, func(), error) {
				sink, err := kafka.Open(ctx, cluster.URL(), kafka.Config{Prefix: name, Replicas: 3})
				if err != nil {
					return nil, nil, err
				}
				return sink, func() {
					_ = sink.Close()
					_ = dropTopics(context.WithoutCancel(ctx), cluster)
				}, nil
			})
			return ours, d.producing(cluster, b.events), nil
		},
	},
	{
		work: "import from Kafka beside JetStream", floor: atLeast(0.8), unit: "/s",
		ours: "an import into an empty log, until it has all that a relay wrote to three nodes of Kafka", peer: "the same from three nodes of JetStream",
		prepare: func(ctx context.Context, b *bench) (ours, peer side, err error) {
			d, err := b.spreadLog(ctx)
			if err != nil {
				return nil, nil, err
			}
			cluster, err := b.startKafka()
			if err != nil {
				return nil, nil, err
			}
			h := b.newHost()
			other, err := hosted(h, func() *testnats.Cluster { return testnats.StartCluster(h, 3) })
			if err != nil {
				return nil, nil, err
			}
			toKafka, toNATS := kafka.Config{Replicas: 3}, nats.Config{Replicas: 3, Logger: quiet}
			for _, open := range []func() (closableSink, error){
				func() (closableSink, error) { return kafka.Open(ctx, cluster.URL(), toKafka) },
				func() (closableSink, error) { return nats.Open(ctx, other.URL, toNATS) },
			} {
				fill := d.relaying(b.events, func(context.Context, string) (posthorn.Sink, func(), error) {
					sink, err := open()
					return sink, func() { _ = sink.Close() }, err
				})
				if _, err := fill(ctx); err != nil {
					return nil, nil, err
				}
			}
			ours = b.importing(func(ctx context.Context) (closableSource, error) {
				return kafka.OpenSource(ctx, cluster.URL(), "default", toKafka)
			})
			return ours, b.importing(func(ctx context.Context) (closableSource, error) {
				return nats.OpenSource(ctx, other.URL, "default", toNATS)
			}), nil
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

func (b *bench) startKafka() (*testkafka.Cluster, error) {
	h := b.newHost()
	return hosted(h, func() *testkafka.Cluster { return testkafka.StartCluster(h, 3) })
}

// Skip ends the start of servers that are not installed.
func (h *host) Skip(args ...any) { panic(failure(fmt.Sprint(args...))) }

// producing writes n records from memory, without Posthorn.
func (d *database) producing(cluster *testkafka.Cluster, n int) side {
	all := entriesOf(n)
	return func(ctx context.Context) (speed float64, err error) {
		ctx, cancel := context.WithTimeout(ctx, sideTimeout)
		defer cancel()
		client, err := kgo.NewClient(kgo.SeedBrokers(cluster.Addrs()...), kgo.DisableClientMetrics())
		if err != nil {
			return 0, err
		}
		defer client.Close()
		names := prefixed(fmt.Sprintf("bare-%d-", d.names.Add(1)))
		if err := makeTopics(ctx, client, names); err != nil {
			return 0, err
		}
		defer func() { err = errors.Join(err, dropTopics(context.WithoutCancel(ctx), cluster)) }()
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
		if err := client.Flush(ctx); err != nil {
			return 0, err
		}
		took := time.Since(start)
		if written.Load() != int64(n) {
			return 0, fmt.Errorf("%d records instead of %d", written.Load(), n)
		}
		return float64(n) / took.Seconds(), nil
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
	return func(ctx context.Context) (float64, error) {
		ctx, cancel := context.WithTimeout(ctx, sideTimeout)
		defer cancel()
		d, err := b.server.newDatabase(ctx)
		if err != nil {
			return 0, err
		}
		defer d.drop()
		// A copied database has the same origin, and a log does not import its own events.
		if _, err := d.Exec(ctx, "update posthorn.log_origin set origin = gen_random_uuid()"); err != nil {
			return 0, err
		}
		source, err := open(ctx)
		if err != nil {
			return 0, err
		}
		defer source.Close()
		ph, err := d.openClient(ctx)
		if err != nil {
			return 0, err
		}
		ph.Import("bench", posthorn.ImportConfig{}, source)
		running, stop := context.WithCancel(ctx)
		defer stop()
		ended := make(chan error, 1)
		start := time.Now()
		go func() { ended <- ph.Run(running) }()
		err = d.awaitImport(ctx, b.events)
		took := time.Since(start)
		stop()
		return float64(b.events) / took.Seconds(), errors.Join(err, <-ended)
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
