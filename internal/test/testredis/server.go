// Package testredis runs Redis servers for tests: a single server, Sentinel, or a
// Cluster. The servers listen on free ports of the loopback interface, and end with
// the test even if the process is killed. A test can kill, pause and restart them.
// Tests that need no server of their own share one through [NewDatabase] and
// [SharedCluster].
package testredis

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testdir"
)

// Server is a redis-server process. Its data survives [Server.Kill].
type Server struct {
	Addr string
	Port int
	// Client is a client without retries, so that a test sees when the server is down.
	Client *redis.Client

	t       testing.TB
	dir     *testdir.Dir
	log     string
	args    []string
	mu      sync.Mutex
	process *os.Process // nil while the server is down
	ended   <-chan struct{}
}

// Start starts a server that syncs every write to disk, so that a kill loses no
// acknowledged write. Options are options of the command line of redis-server.
func Start(t testing.TB, options ...string) *Server {
	t.Helper()
	return start(t, append([]string{"--appendonly", "yes", "--appendfsync", "always"}, options...), nil)
}

// StartTLS starts a server that also accepts TLS connections, at the returned URL.
func StartTLS(t testing.TB, cert, key string) (s *Server, url string) {
	t.Helper()
	port := strconv.Itoa(testdir.FreePort(t))
	s = Start(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-auth-clients", "no")
	return s, "rediss://127.0.0.1:" + port
}

// URL returns the URL of the server.
func (s *Server) URL() string { return "redis://" + s.Addr }

// Kill sends SIGKILL to a running server, and returns when the process has ended.
func (s *Server) Kill() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		_ = s.process.Kill() // fails if the process has ended already
		<-s.ended
		s.process = nil
	}
}

// Pause suspends the process of the server. Its connections stay open and hang.
func (s *Server) Pause() { s.signal(syscall.SIGSTOP) }

// Resume continues a server that was paused.
func (s *Server) Resume() { s.signal(syscall.SIGCONT) }

func (s *Server) signal(signal syscall.Signal) {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process == nil {
		s.t.Fatal("the server is down")
	}
	if err := s.process.Signal(signal); err != nil {
		s.t.Fatal(err)
	}
}

// Restart starts a server that is down, with the same port and data.
func (s *Server) Restart() {
	s.t.Helper()
	if err := s.run(); err != nil {
		s.t.Fatalf("redis-server: %v\n%s", err, s.output())
	}
}

func start(t testing.TB, options []string, configure func(dir string, port int) []string) *Server {
	t.Helper()
	dir := testdir.New(t, "testredis-")
	s := &Server{t: t, dir: dir, log: filepath.Join(dir.Path, "log")}
	t.Cleanup(func() {
		s.Kill()
		if s.Client != nil {
			_ = s.Client.Close()
		}
		if t.Failed() {
			t.Logf("log of %s:\n%s", s.Addr, s.output())
		}
	})
	s.launch(options, configure)
	return s
}

// launch runs the server on a free port.
func (s *Server) launch(options []string, configure func(dir string, port int) []string) {
	s.t.Helper()
	if _, err := exec.LookPath("redis-server"); err != nil {
		s.t.Fatal("redis-server is not installed; scripts/deps installs it")
	}
	for attempt := 0; ; attempt++ { // another process may take the free port first
		s.Port = testdir.FreePort(s.t)
		s.Addr = "127.0.0.1:" + strconv.Itoa(s.Port)
		s.args = nil
		if configure != nil {
			s.args = configure(s.dir.Path, s.Port)
		}
		s.args = append(s.args, "--port", strconv.Itoa(s.Port), "--bind", "127.0.0.1", "--dir", s.dir.Path, "--save", "", "--logfile", s.log)
		s.args = append(s.args, options...)
		if s.Client != nil {
			_ = s.Client.Close()
		}
		s.Client = client(s.Addr, 0)
		err := s.run()
		if err == nil {
			return
		}
		if attempt == 5 {
			s.t.Fatalf("redis-server: %v\n%s", err, s.output())
		}
	}
}

func client(addr string, db int) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, DB: db, Protocol: 2, MaxRetries: -1, DialerRetries: 1, DisableIdentity: true})
}

// run starts the process and waits until the server answers.
func (s *Server) run() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.process != nil {
		return errors.New("the server is running already")
	}
	process := exec.Command("redis-server", s.args...)
	ended, err := s.dir.Start(process)
	if err != nil {
		return err
	}
	var state string
	await.True(s.t, "redis-server answers, or ends", func() bool {
		state, err = s.Client.Info(context.Background(), "persistence").Result() // answered also while the data is loaded
		return err == nil && !strings.Contains(state, "loading:1") || isClosed(ended)
	})
	if isClosed(ended) {
		return fmt.Errorf("the process ended: %w", err)
	}
	s.process, s.ended = process.Process, ended
	return nil
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// Written returns the size of the append-only file.
func (s *Server) Written() int64 {
	s.t.Helper()
	info, err := os.Stat(s.file())
	if err != nil {
		s.t.Fatal(err)
	}
	return info.Size()
}

// Cut truncates the append-only file of a killed server to a size, as if the server
// had been killed in the middle of a write.
func (s *Server) Cut(size int64) {
	s.t.Helper()
	if err := os.Truncate(s.file(), size); err != nil {
		s.t.Fatal(err)
	}
}

func (s *Server) file() string {
	return filepath.Join(s.dir.Path, "appendonlydir", "appendonly.aof.1.incr.aof")
}

// Log returns the log of the server.
func (s *Server) Log() string {
	out, _ := os.ReadFile(s.log)
	return string(out)
}

func (s *Server) output() []byte {
	lines := bytes.SplitAfter([]byte(s.Log()), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-60):], nil)
}
