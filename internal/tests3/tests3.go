// Package tests3 runs an S3 server for tests: versitygw, which keeps objects as
// files.
package tests3

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/posthorn/posthorn/internal/testdir"
	"github.com/posthorn/posthorn/internal/testprogram"
)

const (
	accessKey = "posthorn"
	secretKey = "posthorn-secret"
	bucket    = "archive"

	patience = 2 * time.Minute
)

// Setenv puts the credentials of the servers into the environment, where S3
// clients look. Call it before the tests of a package run.
func Setenv() {
	os.Setenv("AWS_ACCESS_KEY_ID", accessKey)
	os.Setenv("AWS_SECRET_ACCESS_KEY", secretKey)
}

var program = sync.OnceValues(func() (string, error) { return testprogram.Path("versitygw") })

// Server is an S3 server with one bucket.
type Server struct {
	t       testing.TB
	program string
	root    *testdir.Dir
	address string
	cmd     *exec.Cmd
}

// Start starts a server for the test, and ends it with it. The test is skipped
// where the program cannot be built, as without a network, unless this is CI.
func Start(t testing.TB) *Server {
	t.Helper()
	program, err := program()
	if err != nil {
		if os.Getenv("CI") == "" {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	s := &Server{t: t, program: program, root: testdir.New(t, "tests3-")}
	for _, dir := range []string{s.Dir(), s.sidecar()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.address = fmt.Sprintf("127.0.0.1:%d", testdir.FreePort(t))
	s.Restart()
	t.Cleanup(s.Kill)
	return s
}

// URL is what opens the bucket.
func (s *Server) URL() string {
	return "s3://" + bucket + "?region=us-east-1&use_path_style=true&endpoint=http://" + s.address
}

// Dir is where the objects are, as files by their keys.
func (s *Server) Dir() string     { return filepath.Join(s.root.Path, "objects", bucket) }
func (s *Server) sidecar() string { return filepath.Join(s.root.Path, "attributes") }

// Kill kills the server, if it runs.
func (s *Server) Kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
}

// Restart starts the server again, where it was and with what it had.
func (s *Server) Restart() {
	s.t.Helper()
	s.cmd = exec.Command(s.program, "--access", accessKey, "--secret", secretKey, "--port", s.address, "--quiet",
		"posix", "--sidecar", s.sidecar(), filepath.Dir(s.Dir()))
	s.cmd.Stdout, s.cmd.Stderr = io.Discard, io.Discard
	s.root.Attach(s.cmd)
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		conn, err := net.Dial("tcp", s.address)
		if err == nil {
			_ = conn.Close()
			return
		} else if time.Now().After(deadline) {
			s.t.Fatalf("the S3 server does not answer: %v", err)
		}
	}
}
