package testredis

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/posthorn/posthorn/internal/await"
)

// Master is what sentinels call theirs.
const Master = "main"

// Sentinel is a master with two replicas, and three sentinels that watch them.
type Sentinel struct {
	Servers   []*Server // the first was the master at first
	Sentinels []*Server

	t testing.TB
}

// StartSentinel starts them. A replica takes over about two seconds after the
// master is gone.
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
		if err := sentinel.Client.Do(context.Background(), hurry...).Err(); err != nil {
			t.Fatal(err)
		}
		s.Sentinels = append(s.Sentinels, sentinel)
	}
	s.AwaitReady()
	return s
}

// hurry lets sentinels find each other and replicas in a tenth of the usual time,
// and go on at once when the machine was too busy to let them run (tilt).
var hurry = []any{
	"sentinel", "debug", "publish-period", 200, "info-period", 500, "ask-period", 100, "ping-period", 100, "tilt-trigger", 60_000, "tilt-period", 100,
}

// configure writes a sentinel's file, which it writes to itself later.
func (s *Sentinel) configure(dir string, _ int) []string {
	file := filepath.Join(dir, "sentinel.conf")
	text := fmt.Sprintf("sentinel monitor %[1]s 127.0.0.1 %[2]d 2\nsentinel down-after-milliseconds %[1]s 1000\n"+
		"sentinel failover-timeout %[1]s 5000\nsentinel parallel-syncs %[1]s 2\n", Master, s.Servers[0].Port)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		s.t.Fatal(err)
	}
	return []string{file, "--sentinel"}
}

// URL names the sentinels.
func (s *Sentinel) URL() string {
	return "redis-sentinel://" + strings.Join(s.Addrs(), ",") + "/" + Master
}

// Addrs are those of the sentinels.
func (s *Sentinel) Addrs() []string {
	var addrs []string
	for _, sentinel := range s.Sentinels {
		addrs = append(addrs, sentinel.Addr)
	}
	return addrs
}

// Current is the master as the sentinels say.
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

// AwaitReady waits until the master has both replicas and every sentinel knows all.
func (s *Sentinel) AwaitReady() {
	s.t.Helper()
	ctx := context.Background()
	await.True(s.t, "both replicas have the master's data", func() bool {
		info, err := s.Current().Client.Info(ctx, "replication").Result()
		return err == nil && strings.Contains(info, "connected_slaves:2") && strings.Count(info, "state=online") == 2
	})
	for _, sentinel := range s.Sentinels {
		await.True(s.t, "the sentinel knows all", func() bool {
			info, err := sentinel.Client.Info(ctx, "sentinel").Result()
			return err == nil && strings.Contains(info, "status=ok") && strings.Contains(info, "slaves=2,sentinels=3")
		})
	}
}
