package redis

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/posthorn/posthorn"
)

// link is a connection to a single server, Sentinel or a Cluster. It connects when it
// is first used, so that a program can start while Redis is down.
type link struct {
	target

	mu       sync.Mutex
	opened   bool
	closed   bool
	client   redis.UniversalClient
	replicas int
}

// open connects, and detects a Cluster and the number of replicas.
func (l *link) open(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return posthorn.ErrClosed
	}
	if l.opened {
		return nil
	}
	if l.client == nil {
		l.client = l.target.client()
	}
	if err := l.inspect(ctx); err != nil {
		return err
	}
	l.opened = true
	return nil
}

func (l *link) inspect(ctx context.Context) error {
	info, err := l.client.Info(ctx).Result()
	if err != nil && !strings.HasPrefix(err.Error(), "NOPERM") {
		return explain(err)
	}
	if l.kind == single && infoValue(info, "redis_mode") == "cluster" {
		if l.db != 0 {
			return fmt.Errorf("the server belongs to a Cluster, which has database 0 only")
		}
		_ = l.client.Close()
		l.kind = cluster
		l.client = l.target.client()
	}
	if l.replicas = l.target.replicas; l.replicas != 0 {
		return nil
	}
	hasReplicas := false
	switch l.kind {
	case single:
		n, _ := strconv.Atoi(infoValue(info, "connected_slaves"))
		hasReplicas = n > 0
	case sentinel:
		hasReplicas, err = l.sentinelHasReplicas(ctx)
	case cluster:
		hasReplicas, err = l.clusterHasReplicas(ctx)
	}
	if hasReplicas {
		l.replicas = 1
	}
	return explain(err)
}

func infoValue(info, name string) string {
	_, rest, _ := strings.Cut(info, "\n"+name+":")
	value, _, _ := strings.Cut(rest, "\r")
	return value
}

// sentinelHasReplicas asks the sentinels, until one answers, whether the master has
// replicas. Replicas that are down count as well.
func (l *link) sentinelHasReplicas(ctx context.Context) (bool, error) {
	var err error
	for _, addr := range l.addrs {
		client := redis.NewSentinelClient(&redis.Options{
			Addr: addr, Username: l.sentinelUsername, Password: l.sentinelPassword, TLSConfig: l.tls,
			Protocol: 2, DisableIdentity: true, MaxRetries: -1, DialerRetries: 1, ContextTimeoutEnabled: true,
			DialTimeout: l.timeout / 2, ReadTimeout: l.timeout, MaintNotificationsConfig: noMaintNotifications(),
		})
		var replicas []map[string]string
		replicas, err = client.Replicas(ctx, l.master).Result()
		_ = client.Close()
		if err == nil {
			return len(replicas) > 0, nil
		}
	}
	return false, err
}

func (l *link) clusterHasReplicas(ctx context.Context) (bool, error) {
	nodes, err := l.client.ClusterNodes(ctx).Result()
	return strings.Contains(nodes, "slave"), err
}

// node returns the client of the master that has a key.
func (l *link) node(ctx context.Context, key string) (*redis.Client, error) {
	if c, ok := l.client.(*redis.ClusterClient); ok {
		return c.MasterForKey(ctx, key)
	}
	return l.client.(*redis.Client), nil
}

// refresh reloads the slots of a Cluster, and returns when they are loaded.
func (l *link) refresh(ctx context.Context) {
	if c, ok := l.client.(*redis.ClusterClient); ok {
		_ = c.ForEachMaster(ctx, func(context.Context, *redis.Client) error { return nil }) // the next command reports any error
	}
}

// reload reloads the slots of a Cluster in the background, for the next call.
func (l *link) reload(ctx context.Context) {
	if c, ok := l.client.(*redis.ClusterClient); ok {
		c.ReloadState(ctx)
	}
}

// check adds a hint to an error, and reloads the slots of a Cluster for the next call.
func (l *link) check(ctx context.Context, err error) error {
	if err != nil {
		l.reload(ctx)
	}
	return explain(err)
}

// nodeAt returns the client of the Cluster's master at an address.
func (l *link) nodeAt(ctx context.Context, addr string) (*redis.Client, error) {
	c, ok := l.client.(*redis.ClusterClient)
	if !ok {
		return nil, fmt.Errorf("the server has joined a Cluster")
	}
	var mu sync.Mutex
	var at *redis.Client
	err := c.ForEachMaster(ctx, func(_ context.Context, node *redis.Client) error {
		if node.Options().Addr == addr {
			mu.Lock()
			at = node
			mu.Unlock()
		}
		return nil
	})
	if err == nil && at == nil {
		err = fmt.Errorf("no master of the Cluster has the address %s", addr)
	}
	return at, err
}

func (l *link) close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.client == nil {
		return nil
	}
	return l.client.Close()
}
