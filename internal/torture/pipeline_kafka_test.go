package torture

import (
	"context"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/posthorn/posthorn/internal/test/testkafka"
)

// kafkaPart is the pipeline with Kafka in place of the other brokers and the archive: relays, three nodes, and
// importers. It is a part of its own, since three nodes of Kafka leave little of a small machine to others.
type kafkaPart struct {
	*pipelinePart
	kafka   *testkafka.Cluster
	readers []*process
}

func newKafkaPart(r *run) part {
	testkafka.Need(r.t)
	return &kafkaPart{pipelinePart: &pipelinePart{run: r}}
}

func (k *kafkaPart) start() {
	k.startConsumers()
	k.kafka = testkafka.StartCluster(k.t, 3)
	k.servers = setup{Kafka: k.kafka.URL() + "?replicas=3"}
	k.relays = k.two("relay", k.database.url)
	k.readers = k.two("kafka reader", k.consumers)
	k.places = []*place{
		{name: "Kafka", ordered: true, read: k.readKafka},
		{name: "effects of Kafka", once: true, read: k.readEffects("kafka reader")},
	}
	k.clients.Go(k.holdSnapshots)
}

func (k *kafkaPart) faults() []fault {
	return []fault{
		killProcess("relay", k.relays), k.leader(), killProcess("importer", k.readers), k.database.crash(), k.connections(5),
	}
}

// leader kills the node that leads the topic of a stream, or the one that ends transactions, and waits until
// another node leads. Then it restarts the node.
func (k *kafkaPart) leader() fault {
	rng := k.random()
	topics := []string{"posthorn.default." + pipelineStreams[0], "__transaction_state"}
	return fault{"leader of Kafka", func(round int) {
		topic := topics[round%len(topics)]
		node := k.kafka.Leader(k.t, topic)
		node.Kill()
		k.kafka.AwaitOtherLeader(k.t, topic, node)
		pause(k.ctx, upTo(rng, 2*time.Second))
		node.Restart(k.t)
	}}
}

// readKafka reads all topics of Posthorn. Each has one partition.
func (k *kafkaPart) readKafka(ctx context.Context) ([]handed, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second) // a node may be down; the place is read again
	defer cancel()
	records, err := k.kafka.Records(ctx, func(topic string) bool { return strings.HasPrefix(topic, "posthorn.") })
	if err != nil {
		return nil, err
	}
	var read []handed
	for _, r := range records {
		e, err := ofEntry(header(r, "ce_id"), r.Value)
		if err != nil {
			return nil, err
		}
		read = append(read, e)
	}
	return read, nil
}

func header(r *kgo.Record, name string) string {
	for _, h := range r.Headers {
		if h.Key == name {
			return string(h.Value)
		}
	}
	return ""
}
