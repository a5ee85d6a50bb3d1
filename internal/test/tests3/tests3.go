// Package tests3 runs versitygw, an S3 server that stores objects as files, for
// tests.
package tests3

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/posthorn/posthorn/internal/test/await"
	"github.com/posthorn/posthorn/internal/test/testdir"
	"github.com/posthorn/posthorn/internal/test/testprogram"
)

const (
	accessKey = "posthorn"
	secretKey = "posthorn-secret"
)

// Setenv sets the environment variables from which S3 clients read their
// credentials. Call it in TestMain, before tests run in parallel.
func Setenv() {
	os.Setenv("AWS_ACCESS_KEY_ID", accessKey)
	os.Setenv("AWS_SECRET_ACCESS_KEY", secretKey)
}

var program = sync.OnceValues(func() (string, error) { return testprogram.Path("versitygw") })

// Server is an S3 server with one bucket.
type Server struct {
	Bucket
	t       testing.TB
	program string
	cmd     *exec.Cmd
	ended   <-chan struct{}
}

// Bucket is a bucket of a test server.
type Bucket struct {
	name    string
	root    *testdir.Dir
	address string
}

// shared is the server that all tests of this process share. It ends with the
// process.
var shared struct {
	sync.Mutex
	server  *Server
	buckets int
}

// NewBucket creates an empty bucket on the shared server.
func NewBucket(t testing.TB) *Bucket {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		root, err := testdir.Make("tests3-")
		if err != nil {
			t.Fatal(err)
		}
		shared.server = launch(t, root)
	}
	shared.buckets++
	b := shared.server.Bucket
	b.name = fmt.Sprintf("archive%d", shared.buckets)
	b.make(t)
	return &b
}

// Start starts a server, and ends it with the test. If versitygw cannot be built,
// for example without a network, the test is skipped; in CI it fails.
func Start(t testing.TB) *Server {
	t.Helper()
	s := launch(t, testdir.New(t, "tests3-"))
	t.Cleanup(s.Kill)
	return s
}

func launch(t testing.TB, root *testdir.Dir) *Server {
	t.Helper()
	program, err := program()
	if err != nil {
		if os.Getenv("CI") == "" {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	s := &Server{t: t, program: program, Bucket: Bucket{name: "archive", root: root}}
	s.make(t)
	if err := os.MkdirAll(s.sidecar(), 0o755); err != nil {
		t.Fatal(err)
	}
	s.address = fmt.Sprintf("127.0.0.1:%d", testdir.FreePort(t))
	s.Restart()
	return s
}

func (b *Bucket) make(t testing.TB) {
	t.Helper()
	if err := os.MkdirAll(b.Dir(), 0o755); err != nil {
		t.Fatal(err)
	}
}

// URL returns the URL that opens the bucket.
func (b *Bucket) URL() string {
	return "s3://" + b.name + "?region=us-east-1&use_path_style=true&endpoint=http://" + b.address
}

// Dir returns the directory of the objects. Each object is a file named by its key.
func (b *Bucket) Dir() string     { return filepath.Join(b.root.Path, "objects", b.name) }
func (b *Bucket) sidecar() string { return filepath.Join(b.root.Path, "attributes") }

// Kill kills the server if it is running.
func (s *Server) Kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		<-s.ended
		s.cmd = nil
	}
}

// dropUnborn removes the attributes of objects that are not there. The server writes attributes first: when it is killed in
// between, it says for good that the object exists, and that it cannot be found.
func (s *Server) dropUnborn() error {
	return filepath.WalkDir(s.sidecar(), func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() || entry.Name() != "meta" {
			return err
		}
		of, err := filepath.Rel(s.sidecar(), filepath.Dir(path))
		if err != nil {
			return err
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(s.Dir()), of)); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		if err := os.RemoveAll(path); err != nil {
			return err
		}
		return fs.SkipDir
	})
}

// Restart starts the server again, at the same address and with the same objects.
func (s *Server) Restart() {
	s.t.Helper()
	if err := s.dropUnborn(); err != nil {
		s.t.Fatal(err)
	}
	s.cmd = exec.Command(s.program, "--access", accessKey, "--secret", secretKey, "--port", s.address, "--quiet",
		"posix", "--sidecar", s.sidecar(), filepath.Dir(s.Dir()))
	s.cmd.Stdout, s.cmd.Stderr = io.Discard, io.Discard
	var err error
	if s.ended, err = s.root.Start(s.cmd); err != nil {
		s.t.Fatal(err)
	}
	await.True(s.t, "the S3 server answers", func() bool {
		conn, err := net.Dial("tcp", s.address)
		return err == nil && conn.Close() == nil
	})
}
