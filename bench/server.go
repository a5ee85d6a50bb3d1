package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/localpg"
)

var quiet = slog.New(slog.DiscardHandler)

// serverSettings keep full durability. The other values are so large that neither
// checkpoints nor reading from disk affect one side only.
var serverSettings = map[string]string{
	"fsync":              "on",
	"synchronous_commit": "on",
	"shared_buffers":     "1GB",
	"max_wal_size":       "8GB",
	"max_connections":    "400", // worker processes keep theirs between rounds
}

// server is the server on which both sides are measured.
type server struct {
	url     *url.URL
	admin   *pgx.Conn
	version string
	token   string // part of the names of the benchmark's databases
	count   atomic.Int64

	template string // a database with Posthorn's schema, once it exists

	local  *localpg.Server // nil if a URL was given
	binDir string
	dir    string
}

func openServer(ctx context.Context, o options, progress io.Writer) (*server, error) {
	s := &server{token: newToken(), binDir: o.binDir}
	given := o.databaseURL
	if given == "" {
		fmt.Fprintln(progress, "starting a server")
		if err := s.start(ctx); err != nil {
			return nil, err
		}
		given = s.local.URL()
	}
	if err := s.connect(ctx, given); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func newToken() string {
	var token [4]byte
	rand.Read(token[:])
	return hex.EncodeToString(token[:])
}

func (s *server) start(ctx context.Context) (err error) {
	// On a disk and not in memory, unlike tests: commits must wait for the disk.
	if s.dir, err = os.MkdirTemp("", "posthorn-bench-"); err != nil {
		return err
	}
	// If root starts the server, it runs under another account, which must enter the
	// directory.
	if err = os.Chmod(s.dir, 0o755); err == nil {
		err = s.launch(ctx)
	}
	if err != nil {
		os.RemoveAll(s.dir)
	}
	return err
}

func (s *server) launch(ctx context.Context) (err error) {
	s.local, err = localpg.Start(ctx, localpg.Config{Dir: s.dir, BinDir: s.binDir, Settings: serverSettings, Logger: quiet})
	return err
}

// restart kills the server that openServer started, and starts it again at the same
// address.
func (s *server) restart(ctx context.Context) error {
	if err := s.local.Kill(); err != nil {
		return err
	}
	if err := s.launch(ctx); err != nil {
		return err
	}
	s.admin.Close(ctx)
	return s.connect(ctx, s.local.URL())
}

func (s *server) connect(ctx context.Context, given string) (err error) {
	if s.url, err = url.Parse(given); err != nil || s.url.Scheme == "" {
		return fmt.Errorf("not a URL of the form postgres://user:password@host:port/database")
	}
	if s.admin, err = pgx.Connect(ctx, given); err != nil {
		return err
	}
	return s.admin.QueryRow(ctx, "show server_version").Scan(&s.version)
}

// close stops the server that openServer started. It has its own context: an
// interrupted run cleans up too.
func (s *server) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if s.admin != nil {
		if s.template != "" {
			s.admin.Exec(ctx, "drop database if exists "+s.template+" with (force)")
		}
		s.admin.Close(ctx)
	}
	if s.local != nil {
		s.local.Stop(ctx)
		os.RemoveAll(s.dir)
	}
}
