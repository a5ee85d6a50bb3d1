package kafka_test

import (
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testkafka"
	"github.com/posthorn/posthorn/relay"
	"github.com/posthorn/posthorn/relay/kafka"
	"github.com/posthorn/posthorn/relay/relaytest"
)

// world is a node with topics of its own.
type world struct {
	*testkafka.Node
	prefix string
}

var worlds atomic.Int64

// newWorld takes the node that the tests share.
func newWorld(t *testing.T) *world {
	t.Helper()
	return worldOf(t, testkafka.Shared(t))
}

func worldOf(t *testing.T, node *testkafka.Node) *world {
	t.Helper()
	w := &world{node, fmt.Sprintf("w%d", worlds.Add(1))}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of Kafka ends:\n%s", w.LogTail())
		}
	})
	return w
}

func (w *world) url(parameters string) string {
	return "kafka://" + w.Addr + "?prefix=" + w.prefix + parameters
}

func open(t *testing.T, url string, config kafka.Config) *kafka.Sink {
	t.Helper()
	s, err := kafka.Open(t.Context(), url, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func (w *world) Open(t *testing.T) relaytest.Sink { return open(t, w.url(""), kafka.Config{}) }

// Restart starts the node again.
func (w *world) Restart(t *testing.T) {
	t.Helper()
	w.Node.Restart(t)
}

// topic returns the name of the topic of a stream, which its records name.
func (w *world) topic(t *testing.T, client *kgo.Client, namespace, stream string) string {
	t.Helper()
	plain := w.prefix + "." + namespace + "." + stream
	resp, err := kmsg.NewPtrMetadataRequest().RequestWith(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	for _, topic := range resp.Topics {
		if name := *topic.Topic; name == plain {
			return plain
		}
	}
	for _, topic := range resp.Topics {
		name := *topic.Topic
		if len(name) < len(w.prefix) || name[:len(w.prefix)+1] != w.prefix+"." {
			continue
		}
		if records := w.records(t, name); len(records) > 0 && header(records[0], "ce_stream") == stream {
			return name
		}
	}
	t.Fatalf("no topic has the stream %q", stream)
	return ""
}

// Read reads the committed records of a topic as a plain consumer does.
func (w *world) Read(t *testing.T, namespace, stream string) (entries []posthorn.SourceEntry) {
	t.Helper()
	client := w.Client(t)
	defer client.Close()
	for _, r := range w.records(t, w.topic(t, client, namespace, stream)) {
		e := relay.Entry{
			ID: header(r, "ce_id"), Source: header(r, "ce_source"), Type: header(r, "ce_type"), Time: header(r, "ce_time"),
			Subject: header(r, "ce_subject"), Tags: header(r, "ce_tags"), Metadata: header(r, "ce_metadata"), Data: r.Value,
		}
		entries = append(entries, e.Read(stream, ""))
	}
	return entries
}

func header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}

// records reads a topic from its beginning to its end.
func (w *world) records(t *testing.T, topic string) []*kgo.Record {
	t.Helper()
	all, err := testkafka.Records(await.Context(t), func(name string) bool { return name == topic }, w.Addr)
	if err != nil {
		t.Fatalf("read topic %s: %v", topic, err)
	}
	return all
}

func partitionsOf(t *testing.T, client *kgo.Client, topic string) int {
	t.Helper()
	req := kmsg.NewPtrMetadataRequest()
	rt := kmsg.NewMetadataRequestTopic()
	rt.Topic = kmsg.StringPtr(topic)
	req.Topics = append(req.Topics, rt)
	resp, err := req.RequestWith(t.Context(), client)
	if err != nil {
		t.Fatal(err)
	}
	return len(resp.Topics[0].Partitions)
}

func TestSink(t *testing.T) {
	t.Parallel()
	testkafka.Shared(t) // skips all scenarios at once, if Kafka is not installed
	relaytest.TestSink(t, func(t *testing.T) relaytest.Broker { return newWorld(t) })
}
