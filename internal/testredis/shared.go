package testredis

import (
	"fmt"
	"path/filepath"
	"strconv"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/posthorn/posthorn/internal/testdir"
)

// databases is how many tests of a process can have one each.
const databases = 10_000

// shared are the servers that the tests of this process share. They end with the
// process.
var shared struct {
	sync.Mutex
	server    *Server
	databases int
	cluster   *Cluster
	prefixes  int
}

// Database is a database of the server that all tests of the process share.
type Database struct {
	// Client is the test's own way to it.
	Client *redis.Client

	addr   string
	number int
}

// NewDatabase returns an empty database.
func NewDatabase(t testing.TB) *Database {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		s := lasting(t)
		s.launch([]string{"--databases", strconv.Itoa(databases)}, nil)
		_ = s.Client.Close() // each database has its own
		shared.server = s
	}
	d := &Database{addr: shared.server.Addr, number: shared.databases}
	shared.databases++
	d.Client = client(d.addr, d.number)
	t.Cleanup(func() { _ = d.Client.Close() })
	return d
}

// URL is the database's.
func (d *Database) URL() string { return fmt.Sprintf("redis://%s/%d", d.addr, d.number) }

// lasting is a server that is not running yet, and ends with the process.
func lasting(t testing.TB) *Server {
	t.Helper()
	dir, err := testdir.Make("testredis-")
	if err != nil {
		t.Fatal(err)
	}
	return &Server{t: t, dir: dir, log: filepath.Join(dir.Path, "log")}
}

// SharedCluster returns a Cluster of three masters that all tests of the process
// share, and the test's own prefix of keys. The test changes nothing but such keys.
func SharedCluster(t testing.TB) (c *Cluster, prefix string) {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.cluster == nil {
		c := &Cluster{t: t}
		for range 3 {
			s := lasting(t)
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
