package testredis

import (
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/posthorn/posthorn/internal/test/testdir"
)

// databases is the number of databases of the shared server: more than a process
// has tests.
const databases = 10_000

// shared has the servers that all tests of this process share. They end with the
// process.
var shared struct {
	sync.Mutex
	server    *Server
	databases int
	cluster   *Cluster
	prefixes  int
}

// Database is a database of the shared server.
type Database struct {
	Client *redis.Client // for the test's own commands

	addr   string
	number int
}

// NewDatabase returns an empty database of the shared server.
func NewDatabase(t testing.TB) *Database {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		s := newShared(t)
		s.launch([]string{"--databases", strconv.Itoa(databases)}, nil)
		_ = s.Client.Close() // each Database has its own client
		shared.server = s
	}
	d := &Database{addr: shared.server.Addr, number: shared.databases}
	shared.databases++
	d.Client = client(d.addr, d.number)
	t.Cleanup(func() { _ = d.Client.Close() })
	return d
}

// URL returns the URL of the database.
func (d *Database) URL() string { return fmt.Sprintf("redis://%s/%d", d.addr, d.number) }

// newShared returns a server that is not started yet. It ends with the process
// instead of the test.
func newShared(t testing.TB) *Server {
	t.Helper()
	dir, err := testdir.Make("testredis-")
	if err != nil {
		t.Fatal(err)
	}
	return &Server{t: t, dir: dir, log: filepath.Join(dir.Path, "log")}
}

// SharedCluster returns a Cluster of three masters that all tests of this process
// share, and a prefix of keys for this test. The test must write no other keys.
func SharedCluster(t testing.TB) (c *Cluster, prefix string) {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.cluster == nil {
		c := &Cluster{t: t}
		for range 3 {
			s := newShared(t)
			s.launch(nil, clusterNode)
			c.Masters = append(c.Masters, s)
		}
		c.form()
		for _, s := range c.Masters {
			_ = s.Client.Close()
		}
		shared.cluster = c
	}
	shared.prefixes++
	return shared.cluster, fmt.Sprintf("test%d:", shared.prefixes)
}
