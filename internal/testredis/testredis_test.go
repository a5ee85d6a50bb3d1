package testredis_test

import (
	"testing"

	"github.com/posthorn/posthorn/internal/testredis"
	"github.com/posthorn/posthorn/posthorntest"
)

func TestMain(m *testing.M) { posthorntest.Main(m) }

func TestServerKeepsItsDataWhenKilled(t *testing.T) {
	t.Parallel()
	s := testredis.Start(t)
	if err := s.Client.Set(t.Context(), "a", "1", 0).Err(); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if err := s.Client.Ping(t.Context()).Err(); err == nil {
		t.Error("a killed server answers")
	}
	s.Restart()
	if got, err := s.Client.Get(t.Context(), "a").Result(); got != "1" {
		t.Errorf("after a restart: %q, %v", got, err)
	}
}

func TestClusterFailsOver(t *testing.T) {
	t.Parallel()
	c := testredis.StartCluster(t, 3, true)
	client := c.Client()
	owner := c.Owner(client, "a")
	owner.Kill()
	testredis.Await(t, "a replica takes over", func() bool {
		client.ReloadState(t.Context()) // by itself it looks once a minute
		return client.Set(t.Context(), "a", "1", 0).Err() == nil
	})
	if got := c.Owner(client, "a"); got == owner {
		t.Error("the killed master is still the owner")
	}
	owner.Restart()
	c.AwaitReady()
}

func TestSentinelFailsOver(t *testing.T) {
	t.Parallel()
	s := testredis.StartSentinel(t)
	was := s.Current()
	was.Kill()
	testredis.Await(t, "a replica takes over", func() bool {
		return s.Current() != was && s.Current().Client.Set(t.Context(), "a", "1", 0).Err() == nil
	})
	was.Restart()
	s.AwaitReady()
}
