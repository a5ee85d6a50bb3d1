// Package testnats runs NATS servers with JetStream for tests: a single server or
// a cluster. The servers store their files in a temporary directory, listen on
// free ports of the loopback interface, and end with the test. A test can kill,
// pause and restart them. Tests that need no server of their own share one through
// [NewAccount].
//
// The environment variable POSTHORN_TEST_NATS_SERVER is the path of a nats-server to
// use instead of the one that is built from its module.
package testnats

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testdir"
	"github.com/posthorn/posthorn/internal/test/testprogram"
)

// reconnectWait is the pause between two attempts of a client to reconnect.
const reconnectWait = 20 * time.Millisecond

// Server is a NATS server. It can be stopped and started again.
type Server struct {
	URL  string
	Name string

	t    testing.TB
	root *testdir.Dir
	dir  string // has the configuration, log and store of this server
	port int    // for clients

	mu      sync.Mutex
	process *os.Process // nil while the server is down
	ended   <-chan struct{}
}

// Cluster is a cluster of NATS servers.
type Cluster struct {
	Servers []*Server
	URL     string // names all servers
}

// Start starts a single server. The settings are lines that are appended to its
// configuration file.
func Start(t testing.TB, settings ...string) *Server {
	t.Helper()
	return StartCluster(t, 1, settings...).Servers[0]
}

// StartCluster starts a cluster of size servers, and returns when JetStream is
// available on all of them.
func StartCluster(t testing.TB, size int, settings ...string) *Cluster {
	t.Helper()
	c := launch(t, testdir.New(t, "testnats-"), size, settings)
	t.Cleanup(func() {
		for _, s := range c.Servers {
			s.Kill()
			if t.Failed() {
				t.Logf("log of %s ends:\n%s", s.Name, s.logTail())
			}
		}
	})
	return c
}

func launch(t testing.TB, dir *testdir.Dir, size int, settings []string) *Cluster {
	t.Helper()
	c := &Cluster{}
	ports := testdir.FreePorts(t, 2*size)
	var routes []string
	for _, port := range ports[size:] {
		routes = append(routes, fmt.Sprintf("nats://127.0.0.1:%d", port))
	}
	for i := range size {
		s := &Server{
			URL: fmt.Sprintf("nats://127.0.0.1:%d", ports[i]), Name: fmt.Sprintf("n%d", i+1),
			t: t, root: dir, port: ports[i],
		}
		s.dir = filepath.Join(dir.Path, s.Name)
		if err := os.Mkdir(s.dir, 0o755); err != nil {
			t.Fatal(err)
		}
		config := fmt.Sprintf("server_name: %s\nlisten: 127.0.0.1:%d\njetstream { store_dir: %q, max_file_store: 10GB, max_memory_store: 1GB }\n",
			s.Name, s.port, filepath.Join(s.dir, "store"))
		if size > 1 {
			config += fmt.Sprintf("cluster { name: test, listen: 127.0.0.1:%d, routes: [%s] }\n", ports[size+i], strings.Join(routes, ", "))
		}
		config += strings.Join(settings, "\n") + "\n"
		if err := os.WriteFile(filepath.Join(s.dir, "server.conf"), []byte(config), 0o644); err != nil {
			t.Fatal(err)
		}
		c.Servers = append(c.Servers, s)
	}
	for _, s := range c.Servers {
		s.Start()
	}
	var addrs []string
	for _, s := range c.Servers {
		s.Await()
		addrs = append(addrs, "addr="+strings.TrimPrefix(s.URL, "nats://"))
	}
	c.URL = c.Servers[0].URL + "?" + strings.Join(addrs[1:], "&")
	return c
}

// Start starts a server that is down. [Server.Await] waits until it is ready.
func (s *Server) Start() {
	s.t.Helper()
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	process := exec.Command(program(s.t), "-c", filepath.Join(s.dir, "server.conf"))
	process.Stdout, process.Stderr = log, log
	if s.ended, err = s.root.Start(process); err != nil {
		s.t.Fatalf("start nats-server: %v", err)
	}
	s.process = process.Process
}

// Kill sends SIGKILL to a running server, and returns when the process has ended.
func (s *Server) Kill() {
	if s.Signal(syscall.SIGKILL) {
		s.mu.Lock()
		<-s.ended
		s.process = nil
		s.mu.Unlock()
	}
}

// Signal sends a signal to a running server. It returns false if the server is down.
func (s *Server) Signal(signal syscall.Signal) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		return false
	}
	_ = s.process.Signal(signal) // fails if the process has ended already
	return true
}

// Pause suspends the process of the server. Its connections stay open and hang.
func (s *Server) Pause() { s.Signal(syscall.SIGSTOP) }

// Resume continues a server that was paused.
func (s *Server) Resume() { s.Signal(syscall.SIGCONT) }

// Restart starts a server that is down, and waits until it is ready.
func (s *Server) Restart() {
	s.t.Helper()
	s.Start()
	s.Await()
}

// Store returns the directory in which the server stores its streams.
func (s *Server) Store() string { return filepath.Join(s.dir, "store") }

// Await waits until JetStream is available on the server.
func (s *Server) Await() {
	s.t.Helper()
	await.True(s.t, s.Name+" is ready", func() bool {
		select {
		case <-s.ended:
			s.t.Fatalf("%s ended:\n%s", s.Name, s.logTail())
		default:
		}
		return s.ping() == nil
	})
}

// Leader waits until a stream has a leader, and returns that server.
func (c *Cluster) Leader(t testing.TB, stream string) (leader *Server) {
	t.Helper()
	c.await(t, "stream "+stream+" has a leader", stream, func(info *jetstream.ClusterInfo) bool {
		i := slices.IndexFunc(c.Servers, func(s *Server) bool { return s.Name == info.Leader })
		if i >= 0 {
			leader = c.Servers[i]
		}
		return i >= 0
	})
	return leader
}

// AwaitCurrent waits until all replicas of a stream have all its messages.
func (c *Cluster) AwaitCurrent(t testing.TB, stream string) {
	t.Helper()
	c.await(t, "all replicas of stream "+stream+" are current", stream, func(info *jetstream.ClusterInfo) bool {
		return info.Leader != "" && !slices.ContainsFunc(info.Replicas, func(r *jetstream.PeerInfo) bool { return !r.Current || r.Offline })
	})
}

func (c *Cluster) await(t testing.TB, condition, stream string, holds func(*jetstream.ClusterInfo) bool) {
	t.Helper()
	conn, js := Connect(t, c.Servers...)
	defer conn.Close()
	await.True(t, condition, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // a killed server does not answer
		defer cancel()
		s, err := js.Stream(ctx, stream)
		return err == nil && holds(s.CachedInfo().Cluster)
	})
}

func (s *Server) ping() error {
	conn, err := natsgo.Connect(s.URL, natsgo.NoReconnect())
	if errors.Is(err, natsgo.ErrAuthorization) {
		return nil // it wants credentials, and answers
	}
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn, jetstream.WithDefaultTimeout(time.Second))
	if err != nil {
		return err
	}
	_, err = js.AccountInfo(s.t.Context())
	return err
}

// Connect opens a plain NATS connection to one or several servers, for checks that
// do not go through Posthorn.
func Connect(t testing.TB, servers ...*Server) (*natsgo.Conn, jetstream.JetStream) {
	t.Helper()
	var urls []string
	for _, s := range servers {
		urls = append(urls, s.URL)
	}
	conn, err := natsgo.Connect(strings.Join(urls, ","), natsgo.MaxReconnects(-1), natsgo.ReconnectWait(reconnectWait),
		natsgo.ErrorHandler(func(*natsgo.Conn, *natsgo.Subscription, error) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return conn, js
}

func (s *Server) logTail() string {
	log, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	lines := bytes.Split(log, []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-40):], []byte("\n")))
}

var built = sync.OnceValues(func() (string, error) { return testprogram.Path("nats-server") })

// program returns the path of the nats-server to run.
func program(t testing.TB) string {
	t.Helper()
	if path := os.Getenv("POSTHORN_TEST_NATS_SERVER"); path != "" {
		return path
	}
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
