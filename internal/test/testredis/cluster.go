package testredis

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/posthorn/posthorn/internal/test/await"
)

// Cluster is a Redis Cluster.
type Cluster struct {
	Masters  []*Server // the masters before any failover
	Replicas []*Server // Replicas[i] replicates Masters[i]; may be empty

	t testing.TB
}

// StartCluster starts a Cluster with a number of masters, and one replica for each
// master if replicas is true. A replica takes over about two seconds after its
// master went down.
func StartCluster(t testing.TB, masters int, replicas bool, options ...string) *Cluster {
	t.Helper()
	c := &Cluster{t: t}
	for range masters {
		c.Masters = append(c.Masters, startNode(t, options))
	}
	if replicas {
		for range masters {
			c.Replicas = append(c.Replicas, startNode(t, options))
		}
	}
	c.form()
	return c
}

func startNode(t testing.TB, options []string) *Server {
	return start(t, append([]string{"--appendonly", "yes"}, options...), clusterNode)
}

func clusterNode(dir string, _ int) []string {
	return []string{
		"--cluster-enabled", "yes", "--cluster-config-file", filepath.Join(dir, "nodes.conf"),
		"--cluster-node-timeout", "1500", "--cluster-replica-validity-factor", "0", "--repl-diskless-sync-delay", "0",
	}
}

func (c *Cluster) all() []*Server { return slices.Concat(c.Masters, c.Replicas) }

// URL returns the redis-cluster URL with the addresses of all servers.
func (c *Cluster) URL() string { return "redis-cluster://" + strings.Join(c.Addrs(), ",") }

// Addrs returns the addresses of all servers.
func (c *Cluster) Addrs() []string {
	var addrs []string
	for _, s := range c.all() {
		addrs = append(addrs, s.Addr)
	}
	return addrs
}

// Client returns a client of the Cluster. It is closed when the test ends.
func (c *Cluster) Client(t testing.TB) *redis.ClusterClient {
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(), Protocol: 2, DisableIdentity: true})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func (c *Cluster) form() {
	c.t.Helper()
	const slots = 16384
	ctx := context.Background()
	first := c.all()[0]
	for i, s := range c.all() {
		c.must(s.Client.Do(ctx, "cluster", "set-config-epoch", i+1).Err())
		if i < len(c.Masters) {
			n := len(c.Masters)
			c.must(s.Client.ClusterAddSlotsRange(ctx, i*slots/n, (i+1)*slots/n-1).Err())
		}
		if i > 0 {
			c.must(first.Client.ClusterMeet(ctx, "127.0.0.1", fmt.Sprint(s.Port)).Err())
		}
	}
	for _, s := range c.all() {
		await.True(c.t, "every server knows all others", func() bool {
			nodes, err := s.Client.ClusterNodes(ctx).Result()
			return err == nil && strings.Count(nodes, " connected") == len(c.all()) && !strings.Contains(nodes, "handshake")
		})
	}
	for i, replica := range c.Replicas {
		id, err := c.Masters[i].Client.ClusterMyID(ctx).Result()
		c.must(err)
		c.must(replica.Client.ClusterReplicate(ctx, id).Err())
	}
	c.AwaitReady()
}

// AwaitReady waits until every server reports the Cluster as healthy, and every
// replica is connected to its master.
func (c *Cluster) AwaitReady() {
	c.t.Helper()
	ctx := context.Background()
	for _, s := range c.all() {
		await.True(c.t, "the Cluster is ready", func() bool {
			info, err := s.Client.ClusterInfo(ctx).Result()
			if err != nil || !strings.Contains(info, "cluster_state:ok") {
				return false
			}
			nodes, err := s.Client.ClusterNodes(ctx).Result()
			if err != nil || strings.Count(nodes, " slave ")+strings.Count(nodes, ",slave ") != len(c.Replicas) {
				return false
			}
			info, err = s.Client.Info(ctx, "replication").Result()
			return err == nil && (strings.Contains(info, "role:master") || strings.Contains(info, "master_link_status:up"))
		})
	}
}

// Owner returns the master of a key, according to the client.
func (c *Cluster) Owner(client *redis.ClusterClient, key string) *Server {
	c.t.Helper()
	node, err := client.MasterForKey(context.Background(), key)
	c.must(err)
	for _, s := range c.all() {
		if s.Addr == node.Options().Addr {
			return s
		}
	}
	c.t.Fatalf("no server of the Cluster has the address %s", node.Options().Addr)
	return nil
}

func (c *Cluster) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}
