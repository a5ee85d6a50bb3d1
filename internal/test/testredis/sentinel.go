package testredis

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/posthorn/posthorn/internal/test/await"
)

// Master is the name of the master in the configuration of the sentinels.
const Master = "main"

// Sentinel is a master with two replicas, and three sentinels that watch them.
type Sentinel struct {
	Servers   []*Server // Servers[0] is the master before any failover
	Sentinels []*Server

	t testing.TB
}

// StartSentinel starts the servers and the sentinels. A replica takes over about
// two seconds after the master went down.
func StartSentinel(t testing.TB) *Sentinel {
	t.Helper()
	s := &Sentinel{t: t}
	for i := range 3 {
		options := []string{"--appendonly", "yes", "--repl-diskless-sync-delay", "0"}
		if i > 0 {
			options = append(options, "--replicaof", fmt.Sprintf("127.0.0.1 %d", s.Servers[0].Port))
		}
		s.Servers = append(s.Servers, start(t, options, nil))
	}
	for range 3 {
		sentinel := start(t, nil, s.configure)
		if err := sentinel.Client.Do(context.Background(), shortPeriods...).Err(); err != nil {
			t.Fatal(err)
		}
		s.Sentinels = append(s.Sentinels, sentinel)
	}
	s.AwaitReady()
	return s
}

// shortPeriods is a command that makes sentinels discover each other and the replicas
// in a tenth of the usual time, and shortens TILT, the mode in which a sentinel does
// nothing after a busy machine has suspended it.
var shortPeriods = []any{
	"sentinel", "debug", "publish-period", 200, "info-period", 500, "ask-period", 100, "ping-period", 100, "tilt-trigger", 60_000, "tilt-period", 100,
}

// configure writes the configuration file of a sentinel, which the sentinel itself
// rewrites later.
func (s *Sentinel) configure(dir string, _ int) []string {
	file := filepath.Join(dir, "sentinel.conf")
	text := fmt.Sprintf("sentinel monitor %[1]s 127.0.0.1 %[2]d 2\nsentinel down-after-milliseconds %[1]s 1000\n"+
		"sentinel failover-timeout %[1]s 5000\nsentinel parallel-syncs %[1]s 2\n", Master, s.Servers[0].Port)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
	return []string{file, "--sentinel"}
}

// URL returns the redis-sentinel URL with the addresses of the sentinels.
func (s *Sentinel) URL() string {
	return "redis-sentinel://" + strings.Join(s.Addrs(), ",") + "/" + Master
}

// Addrs returns the addresses of the sentinels.
func (s *Sentinel) Addrs() []string {
	var addrs []string
	for _, sentinel := range s.Sentinels {
		addrs = append(addrs, sentinel.Addr)
	}
	return addrs
}

// Current waits until all sentinels name the same master, and returns that server.
func (s *Sentinel) Current() *Server {
	s.t.Helper()
	var current *Server
	await.True(s.t, "the sentinels agree on a master", func() bool {
		var addr string
		for i, sentinel := range s.Sentinels {
			var at []string
			cmd := redis.NewStringSliceCmd(context.Background(), "sentinel", "get-master-addr-by-name", Master)
			if sentinel.Client.Process(context.Background(), cmd) == nil {
				at, _ = cmd.Result()
			}
			if len(at) != 2 || i > 0 && addr != at[0]+":"+at[1] {
				return false
			}
			addr = at[0] + ":" + at[1]
		}
		for _, server := range s.Servers {
			if server.Addr == addr {
				current = server
				return true
			}
		}
		return false
	})
	return current
}

// AwaitReady waits until both replicas are in sync with the master, and every
// sentinel knows the replicas and the other sentinels.
func (s *Sentinel) AwaitReady() {
	s.t.Helper()
	ctx := context.Background()
	await.True(s.t, "both replicas are in sync with the master", func() bool {
		info, err := s.Current().Client.Info(ctx, "replication").Result()
		return err == nil && strings.Contains(info, "connected_slaves:2") && strings.Count(info, "state=online") == 2
	})
	for _, sentinel := range s.Sentinels {
		await.True(s.t, "the sentinel knows all servers", func() bool {
			info, err := sentinel.Client.Info(ctx, "sentinel").Result()
			return err == nil && strings.Contains(info, "status=ok") && strings.Contains(info, "slaves=2,sentinels=3")
		})
	}
}
