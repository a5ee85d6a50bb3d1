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
	"slices"
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

	template  string // the name of a database with Posthorn's schema, once it exists
	databases []*database

	local    *localpg.Server // nil if a URL was given
	settings map[string]string
	binDir   string
	dir      string
}

func openServer(ctx context.Context, o options, settings map[string]string, progress io.Writer) (*server, error) {
	s := &server{token: newToken(), settings: settings, binDir: o.binDir}
	err := caught(func() {
		given := o.databaseURL
		if given == "" {
			fmt.Fprintln(progress, "starting a server")
			s.start(ctx)
			given = s.local.URL()
		}
		s.connect(ctx, given)
	})
	if err != nil {
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

func (s *server) start(ctx context.Context) {
	// On a disk and not in memory, unlike tests: commits must wait for the disk.
	s.dir = must(os.MkdirTemp("", "posthorn-bench-"))
	// If root starts the server, it runs under another account, which must enter the
	// directory.
	check(os.Chmod(s.dir, 0o755))
	s.launch(ctx)
}

func (s *server) launch(ctx context.Context) {
	s.local = must(localpg.Start(ctx, localpg.Config{Dir: s.dir, BinDir: s.binDir, Settings: s.settings, Logger: quiet}))
}

// restart kills the server that openServer started, and starts it again at the same
// address.
func (s *server) restart(ctx context.Context) {
	check(s.local.Kill())
	s.launch(ctx)
	s.admin.Close(ctx)
	s.connect(ctx, s.local.URL())
}

func (s *server) connect(ctx context.Context, given string) {
	var err error
	if s.url, err = url.Parse(given); err != nil || s.url.Scheme == "" {
		fail("not a URL of the form postgres://user:password@host:port/database")
	}
	s.admin = must(pgx.Connect(ctx, given))
	check(s.admin.QueryRow(ctx, "show server_version").Scan(&s.version))
}

// close drops the databases that are left, and stops the server that openServer started.
// It has its own context: an interrupted run cleans up too.
func (s *server) close() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for _, d := range slices.Backward(slices.Clone(s.databases)) {
		d.drop()
	}
	if s.admin != nil {
		s.admin.Close(ctx)
	}
	if s.local != nil {
		s.local.Stop(ctx)
	}
	os.RemoveAll(s.dir)
}
