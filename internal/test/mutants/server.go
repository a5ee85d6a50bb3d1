package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/test/testdir"
	"github.com/posthorn/posthorn/internal/test/testpg"
)

// pristine is a copy of the template as the tests made it.
const pristine = "mutants_pristine"

// server is the Postgres that all tests share. Each test copies the database that
// package posthorntest calls the template; a mutant of SQL is a change to the template.
type server struct {
	url      string
	env      []string // makes tests use it
	admin    *pgx.Conn
	template string
	changed  bool
}

func startServer(ctx context.Context, dir *testdir.Dir) (*server, error) {
	url, err := testpg.StartServer(ctx, dir, testpg.BinDir())
	if err != nil {
		return nil, err
	}
	s := &server{url: url, env: []string{"POSTHORN_TEST_DATABASE_URL=" + url}}
	s.admin, err = pgx.Connect(ctx, url)
	return s, err
}

// findTemplate finds the template that a run of tests without a mutant has left, and
// keeps a copy.
func (s *server) findTemplate(ctx context.Context) error {
	err := s.admin.QueryRow(ctx, "select datname from pg_database where datname like 'posthorn\\_migrated\\_%'").Scan(&s.template)
	if err == pgx.ErrNoRows {
		return nil // no test has used a database
	}
	if err == nil {
		_, err = s.admin.Exec(ctx, "create database "+pristine+" template "+s.template+" strategy file_copy")
	}
	if err != nil {
		return fmt.Errorf("copy the template: %w", err)
	}
	return nil
}

// apply makes a template with the functions of a file.
func (s *server) apply(ctx context.Context, functions string) error {
	if err := s.restore(ctx); err != nil {
		return err
	}
	s.changed = true
	return s.inTemplate(ctx, func(db *pgx.Conn) error {
		// Bodies are checked here, so that a mistake in the data is not taken for a mutant
		// that was noticed.
		const settings = "set search_path = ''; set client_min_messages = warning; set check_function_bodies = on;\n"
		_, err := db.Exec(ctx, settings+functions)
		return err
	})
}

// restore makes the template what it was, if it was changed.
func (s *server) restore(ctx context.Context) error {
	if !s.changed {
		return nil
	}
	if _, err := s.admin.Exec(ctx, "drop database if exists "+s.template+" with (force)"); err != nil {
		return err
	}
	_, err := s.admin.Exec(ctx, "create database "+s.template+" template "+pristine+" strategy file_copy allow_connections false")
	s.changed = err != nil
	return err
}

// inTemplate calls do with a connection to the template. The template has connections
// only meanwhile, since Postgres cannot copy a database that has some.
func (s *server) inTemplate(ctx context.Context, do func(db *pgx.Conn) error) error {
	if _, err := s.admin.Exec(ctx, "alter database "+s.template+" with allow_connections true"); err != nil {
		return err
	}
	config := s.admin.Config().Copy()
	config.Database = s.template
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	db, err := pgx.ConnectConfig(ctx, config)
	if err == nil {
		err = do(db)
		_ = db.Close(ctx)
	}
	if err != nil {
		return err
	}
	_, err = s.admin.Exec(ctx, "alter database "+s.template+" with allow_connections false")
	return err
}
