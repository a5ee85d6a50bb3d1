// Package tests3 runs an S3 server for tests: versitygw, which keeps objects as
// files, built from its Go module when a machine first needs it.
package tests3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	module  = "github.com/versity/versitygw/cmd/versitygw"
	version = "v1.8.0"

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

// Server is an S3 server with one bucket.
type Server struct {
	t       testing.TB
	program string
	root    string
	address string
	cmd     *exec.Cmd
}

// Start starts a server for the test, and ends it with it. The test is skipped
// where the program cannot be built because its module is not to be had, unless
// this is CI.
func Start(t testing.TB) *Server {
	t.Helper()
	program, err := Build()
	if err != nil {
		if os.Getenv("CI") == "" && errors.As(err, new(unavailableError)) {
			t.Skip(err)
		}
		t.Fatal(err)
	}
	s := &Server{t: t, program: program, root: t.TempDir()}
	for _, dir := range []string{s.Dir(), s.sidecar()} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	s.address = freeAddress(t)
	s.Restart()
	t.Cleanup(s.Kill)
	return s
}

// URL is what opens the bucket.
func (s *Server) URL() string {
	return "s3://" + bucket + "?region=us-east-1&use_path_style=true&endpoint=http://" + s.address
}

// Dir is where the objects are, as files by their keys.
func (s *Server) Dir() string     { return filepath.Join(s.root, "objects", bucket) }
func (s *Server) sidecar() string { return filepath.Join(s.root, "attributes") }

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
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; {
		conn, err := net.Dial("tcp", s.address)
		if err == nil {
			_ = conn.Close()
			return
		} else if time.Now().After(deadline) {
			s.t.Fatalf("the S3 server does not answer: %v", err)
		}
	}
}

func freeAddress(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// unavailableError: neither is the program there, nor what it is built from.
type unavailableError struct{ error }

var build = sync.OnceValues(buildProgram)

// Build returns the path of the program, which it builds if need be. Processes that
// want it at once wait for the one that builds.
func Build() (string, error) { return build() }

func buildProgram() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "posthorn", "versitygw-"+version)
	program := filepath.Join(dir, "versitygw")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	lock, err := os.Create(filepath.Join(dir, "lock"))
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	built, err := os.MkdirTemp(dir, "build")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(built)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", "install", module+"@"+version)
	cmd.Dir = built
	cmd.Env = append(os.Environ(), "GOBIN="+built, "GOFLAGS=", "GOWORK=off")
	if output, err := cmd.CombinedOutput(); err != nil {
		lines := strings.Split(strings.TrimSpace(string(output)), "\n")
		return "", unavailableError{fmt.Errorf("no S3 server: go install %s@%s: %w: %s", module, version, err, lines[len(lines)-1])}
	}
	return program, os.Rename(filepath.Join(built, "versitygw"), program)
}
