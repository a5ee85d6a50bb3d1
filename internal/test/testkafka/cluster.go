package testkafka

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testdir"
)

// Cluster is several nodes. When one is killed, another one leads its partitions within a few seconds.
type Cluster struct {
	Nodes []*Node

	client *kgo.Client // for questions about the leaders
}

// StartCluster starts a cluster of nodes for a test, and returns when each of them takes replicas.
func StartCluster(t testing.TB, size int) *Cluster {
	t.Helper()
	jars := programs(t)
	c := &Cluster{Nodes: launch(t, testdir.New(t, "testkafka-"), jars, size)}
	c.client = c.Nodes[0].Client(t, kgo.SeedBrokers(c.Addrs()...), kgo.MetadataMinAge(10*time.Millisecond))
	t.Cleanup(func() {
		c.client.Close()
		for _, n := range c.Nodes {
			n.Kill()
			if t.Failed() {
				t.Logf("log of %s ends:\n%s", n.name, n.LogTail())
			}
		}
	})
	await.True(t, "all nodes of Kafka are accepted", func() bool {
		found, err := c.metadata(t)
		return err == nil && len(found.Brokers) == size
	})
	return c
}

// Addrs returns the addresses of the nodes.
func (c *Cluster) Addrs() (all []string) {
	for _, n := range c.Nodes {
		all = append(all, n.Addr)
	}
	return all
}

// URL names all nodes.
func (c *Cluster) URL() string { return "kafka://" + strings.Join(c.Addrs(), ",") }

func (c *Cluster) metadata(t testing.TB, topics ...string) (*kmsg.MetadataResponse, error) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // a killed node does not answer
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	for _, name := range topics {
		rt := kmsg.NewMetadataRequestTopic()
		rt.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, rt)
	}
	return req.RequestWith(ctx, c.client)
}

// Leader waits until all replicas of a topic are in sync, and returns the node that leads its first partition.
func (c *Cluster) Leader(t testing.TB, topic string) (leader *Node) {
	t.Helper()
	await.True(t, "all replicas of topic "+topic+" are in sync", func() bool {
		found, inSync := c.leader(t, topic)
		leader = found
		return leader != nil && inSync
	})
	return leader
}

// AwaitOtherLeader waits until another node leads the first partition of a topic.
func (c *Cluster) AwaitOtherLeader(t testing.TB, topic string, old *Node) {
	t.Helper()
	await.True(t, "another node than "+old.name+" leads topic "+topic, func() bool {
		leader, _ := c.leader(t, topic)
		return leader != nil && leader != old
	})
}

func (c *Cluster) leader(t testing.TB, topic string) (leader *Node, inSync bool) {
	found, err := c.metadata(t, topic)
	if err != nil || len(found.Topics) != 1 || len(found.Topics[0].Partitions) == 0 {
		return nil, false
	}
	inSync = true
	for _, p := range found.Topics[0].Partitions {
		if p.Partition == 0 {
			if i := slices.IndexFunc(c.Nodes, func(n *Node) bool { return n.id == int(p.Leader) }); i >= 0 {
				leader = c.Nodes[i]
			}
		}
		inSync = inSync && len(p.ISR) == len(p.Replicas)
	}
	return leader, inSync
}

// Records returns the committed records of the wanted topics; see [Records].
func (c *Cluster) Records(ctx context.Context, wanted func(topic string) bool) ([]*kgo.Record, error) {
	return Records(ctx, wanted, c.Addrs()...)
}

// Records reads topics as a plain consumer does that knows nothing of Posthorn: from their beginnings to the last
// committed records. The records of a partition are in their order. It returns an error, or waits, while nodes are down.
func Records(ctx context.Context, wanted func(topic string) bool, addrs ...string) (all []*kgo.Record, err error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.DisableClientMetrics(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.KeepControlRecords(), kgo.MetadataMinAge(100*time.Millisecond))
	if err != nil {
		return nil, err
	}
	defer client.Close()
	left, err := ends(ctx, client, wanted)
	if err != nil || len(left) == 0 {
		return nil, err
	}
	client.AddConsumePartitions(left.begin())
	for len(left) > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return nil, fmt.Errorf("%w; partitions that are not read to these ends: %v", err, left)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if !r.Attrs.IsControl() {
				all = append(all, r)
			}
			if at := (place{r.Topic, r.Partition}); r.Offset+1 >= left[at] {
				delete(left, at)
			}
		})
	}
	return all, nil
}

// place is a partition of a topic.
type place struct {
	topic     string
	partition int32
}

type offsets map[place]int64

func (o offsets) begin() map[string]map[int32]kgo.Offset {
	all := map[string]map[int32]kgo.Offset{}
	for at := range o {
		if all[at.topic] == nil {
			all[at.topic] = map[int32]kgo.Offset{}
		}
		all[at.topic][at.partition] = kgo.NewOffset().AtStart()
	}
	return all
}

// ends returns the ends of the committed records of each partition that has any.
func ends(ctx context.Context, client *kgo.Client, wanted func(topic string) bool) (offsets, error) {
	found, err := kmsg.NewPtrMetadataRequest().RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel = -1, 1
	for _, t := range found.Topics {
		if !wanted(*t.Topic) {
			continue
		}
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = *t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewListOffsetsRequestTopicPartition()
			rp.Partition, rp.Timestamp = p.Partition, -1
			rt.Partitions = append(rt.Partitions, rp)
		}
		req.Topics = append(req.Topics, rt)
	}
	all := offsets{}
	if len(req.Topics) == 0 {
		return all, nil
	}
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		return nil, err
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if err := kerr.ErrorForCode(p.ErrorCode); err != nil {
				return nil, fmt.Errorf("the end of partition %d of topic %s: %w", p.Partition, t.Topic, err)
			}
			if p.Offset > 0 {
				all[place{t.Topic, p.Partition}] = p.Offset
			}
		}
	}
	return all, nil
}
