package schedule

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/test/testdir"
	"github.com/posthorn/posthorn/internal/test/testpg"
	"github.com/posthorn/posthorn/localpg"
	"github.com/posthorn/posthorn/schema"
)

// Server is a Postgres of the package's own, with a template of Posthorn's schema.
type Server struct {
	dir      *testdir.Dir
	config   localpg.Config
	postgres *localpg.Server
	admin    *pgx.Conn
	made     int // databases
}

// settings make schedules repeatable: no process of the server works by itself, and what
// commits without waiting for the disk is lost in a crash.
var settings = map[string]string{
	"autovacuum":                "off",
	"bgwriter_lru_maxpages":     "0",
	"checkpoint_timeout":        "1d",
	"deadlock_timeout":          "1s", // longer than upkeep waits for a lock, as everywhere
	"fsync":                     "off",
	"full_page_writes":          "off",
	"jit":                       "off",
	"max_prepared_transactions": "20",
	"max_wal_size":              "256MB", // the directory may be in memory
	"shared_buffers":            "128MB",
	"shared_preload_libraries":  "plpgsql",
	"wal_writer_delay":          "10s",
}

// original is the template with Posthorn's functions, and current the one with changes.
const (
	original = "schedule_original"
	current  = "schedule_current"
)

// StartServer starts a server. It ends with this process.
func StartServer(ctx context.Context) (*Server, error) {
	dir, err := testdir.Make("schedule-")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir, config: testpg.Config(dir.Path, testpg.BinDir(), settings)}
	if err = s.start(ctx); err == nil {
		err = s.migrate(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// Close stops the server and removes its directory.
func (s *Server) Close() error { return s.dir.Remove() }

func (s *Server) start(ctx context.Context) (err error) {
	if s.postgres, err = localpg.Start(ctx, s.config); err == nil {
		s.admin, err = pgx.Connect(ctx, s.postgres.URL())
	}
	return err
}

// crash kills the server and starts it again. All connections are lost.
func (s *Server) crash(ctx context.Context) error {
	if err := s.postgres.Kill(); err != nil {
		return err
	}
	s.config.Port = s.postgres.Port()
	return s.start(ctx)
}

func (s *Server) migrate(ctx context.Context) error {
	if _, err := s.admin.Exec(ctx, "create database "+original); err != nil {
		return err
	}
	err := s.in(ctx, original, func(db *pgx.Conn) error {
		if _, err := schema.Migrate(ctx, db, schema.Options{}); err != nil {
			return err
		}
		_, err := db.Exec(ctx, "update posthorn.cluster set life = null, log = null;"+prepare) // a copy is no restored database
		return err
	})
	if err != nil {
		return fmt.Errorf("make the template: %w", err)
	}
	return s.Apply(ctx)
}

// Apply makes the databases of the schedules that follow: with the original functions, and
// these files of functions in place of theirs.
func (s *Server) Apply(ctx context.Context, functions ...string) error {
	if err := s.copy(ctx, current, original); err != nil {
		return err
	}
	return s.in(ctx, current, func(db *pgx.Conn) error {
		_, err := db.Exec(ctx, "set search_path = ''; set client_min_messages = warning; set check_function_bodies = on;\n"+strings.Join(functions, ";\n"))
		return err
	})
}

// database makes a database for schedules, in place of an earlier one.
func (s *Server) database(ctx context.Context, old string) (string, error) {
	if old != "" {
		if _, err := s.admin.Exec(ctx, "drop database if exists "+old+" with (force)"); err != nil {
			return "", err
		}
	}
	s.made++
	name := fmt.Sprintf("schedule_%d", s.made)
	return name, s.copy(ctx, name, current)
}

func (s *Server) copy(ctx context.Context, to, from string) error {
	if _, err := s.admin.Exec(ctx, "drop database if exists "+to+" with (force)"); err != nil {
		return err
	}
	_, err := s.admin.Exec(ctx, "create database "+to+" template "+from+" strategy file_copy")
	return err
}

// connect connects to a database. A session with a name stops at points.
func (s *Server) connect(ctx context.Context, database, name string) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(s.postgres.URL())
	if err != nil {
		return nil, err
	}
	config.Database = database
	config.RuntimeParams["application_name"] = "schedule " + name
	config.RuntimeParams["client_min_messages"] = "warning"
	config.RuntimeParams["sched.me"] = name
	return pgx.ConnectConfig(ctx, config)
}

func (s *Server) in(ctx context.Context, database string, do func(db *pgx.Conn) error) error {
	db, err := s.connect(ctx, database, "")
	if err != nil {
		return err
	}
	defer db.Close(ctx)
	return do(db)
}
