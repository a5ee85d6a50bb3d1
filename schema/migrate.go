package schema

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Options of Migrate. The zero value is a sound default.
type Options struct {
	// Logger hears of progress and of waiting. Default: nobody does.
	Logger *slog.Logger
	// LockTimeout is how long an attempt waits for a table that is in use, and
	// so how long it may make others wait. The pause before the next attempt is
	// at least as long. Default: 900 milliseconds, which is below the default of
	// deadlock_timeout, so that in a deadlock it is mostly the migration that
	// gives way and not a publisher.
	LockTimeout time.Duration
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.LockTimeout <= 0 {
		o.LockTimeout = 900 * time.Millisecond
	}
	return o
}

// Report tells what Migrate did.
type Report struct {
	From    Version  `json:"from"` // zero when there was no schema
	To      Version  `json:"to"`
	Applied []string `json:"applied"` // files in the order they were applied; empty when there was nothing to do
}

func (b bundle) migrate(ctx context.Context, db DB, opts Options) (Report, error) {
	opts = opts.withDefaults()
	s, err := b.state(ctx, db)
	if err != nil {
		return Report{}, fmt.Errorf("migrate: %w", err)
	}
	if s.Standing == Absent || s.Standing == Behind {
		// What was seen without the lock only says that it is worth taking.
		err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
			s, err = b.upgrade(ctx, tx, opts)
			return err
		})
	}
	if err != nil {
		return Report{}, fmt.Errorf("migrate: %w", err)
	}
	return b.report(s, opts.Logger)
}

// report turns the state that was found, and by now dealt with, into the answer.
func (b bundle) report(found State, log *slog.Logger) (Report, error) {
	if err := found.refusal(); err != nil {
		return Report{}, fmt.Errorf("migrate: %w", err)
	}
	r := Report{From: found.Database, To: found.Database, Applied: found.Pending}
	switch found.Standing {
	case Ahead:
		log.Warn("database schema is newer than this binary; upgrade the binary",
			"database", found.Database.String(), "applied_by", found.AppliedBy, "binary", found.Binary.String())
	case Absent, Behind:
		r.To = b.version
	}
	return r, nil
}

// upgrade applies what is missing and returns the state it found under the lock.
func (b bundle) upgrade(ctx context.Context, tx pgx.Tx, opts Options) (State, error) {
	if err := lock(ctx, tx, opts.Logger); err != nil {
		return State{}, err
	}
	s, err := b.state(ctx, tx)
	if err != nil {
		return State{}, err
	}
	if steps := b.steps(s); len(steps) > 0 {
		err = insist(ctx, tx, steps, opts)
	}
	return s, err
}

// The isolation level matters: under a stricter one, whoever waited for the lock
// would not see what its predecessor committed. Time limits of the role are for
// its everyday statements, and would kill a migration half-way or in its pauses.
const transactionSettings = `
set transaction isolation level read committed, read write;
set local lock_timeout = 0;
set local statement_timeout = 0;
set local idle_in_transaction_session_timeout = 0;
`

// lockKey is "posthorn" in ASCII.
const lockKey = 0x706f7374686f726e

func lock(ctx context.Context, tx pgx.Tx, log *slog.Logger) error {
	if _, err := tx.Exec(ctx, transactionSettings); err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	var free bool
	err := tx.QueryRow(ctx, `select pg_try_advisory_xact_lock($1)`,
		pgx.QueryExecModeSimpleProtocol, int64(lockKey)).Scan(&free)
	if err == nil && !free {
		log.Info("another process is migrating the database; waiting for it")
		_, err = tx.Exec(ctx, `select pg_advisory_xact_lock($1)`,
			pgx.QueryExecModeSimpleProtocol, int64(lockKey))
	}
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	return nil
}

// insist attempts the steps until no lock is in their way. The attempts are
// savepoints inside the transaction that holds the advisory lock: rolling back
// to one releases the tables at once, while other processes that want to
// migrate keep waiting instead of making attempts in the pauses.
func insist(ctx context.Context, tx pgx.Tx, steps []Step, opts Options) error {
	pause := opts.LockTimeout
	for attempt := 1; ; attempt++ {
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			return apply(ctx, tx, steps, opts)
		})
		if !inTheWay(err) {
			return err
		}
		opts.Logger.Warn("schema is in use; will try again", "attempt", attempt, "pause", pause, "error", err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w, while the schema is in use: %w", ctx.Err(), err)
		case <-time.After(pause):
		}
		pause = min(2*pause, 8*opts.LockTimeout)
	}
}

func inTheWay(err error) bool {
	var pgErr *pgconn.PgError
	const lockNotAvailable, deadlockDetected = "55P03", "40P01"
	return errors.As(err, &pgErr) && (pgErr.Code == lockNotAvailable || pgErr.Code == deadlockDetected)
}

// Under these settings the same SQL does the same thing for everyone: nothing is
// found by a role's search path, and functions may name others that a later file
// makes.
var scriptSettings = []string{
	"check_function_bodies = off",
	"search_path = ''",
	"client_min_messages = warning",
}

func apply(ctx context.Context, tx pgx.Tx, steps []Step, opts Options) error {
	settings := fmt.Sprintf("set local lock_timeout = %d;\n", opts.LockTimeout.Milliseconds())
	for _, s := range scriptSettings {
		settings += "set local " + s + ";\n"
	}
	if _, err := tx.Exec(ctx, settings); err != nil {
		return err
	}
	for _, step := range steps {
		opts.Logger.Debug("apply", "file", step.Name)
		if err := step.run(ctx, tx.Conn().PgConn()); err != nil {
			return err
		}
	}
	return nil
}

func (b bundle) dryRun(ctx context.Context, db Querier) ([]Step, error) {
	s, err := b.state(ctx, db)
	if err != nil {
		return nil, err
	}
	if err := s.refusal(); err != nil {
		return nil, err
	}
	if steps := b.steps(s); len(steps) > 0 {
		return script(steps), nil
	}
	return nil, nil
}
