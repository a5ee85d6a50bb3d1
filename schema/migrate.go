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

// Options of Migrate. The zero value uses the defaults.
type Options struct {
	// Logger receives messages about progress and waiting. Default: none.
	Logger *slog.Logger
	// LockTimeout limits how long an attempt waits for a lock on a table, and so how
	// long it may block other transactions. The pause before the next attempt is at
	// least as long. Default: 900 milliseconds, which is below the default
	// deadlock_timeout: so in most deadlocks Postgres cancels the migration and not a
	// publisher.
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

// Report describes the changes of one call of Migrate.
type Report struct {
	From    Version  `json:"from"` // zero if there was no schema
	To      Version  `json:"to"`
	Applied []string `json:"applied"` // files in the order of application; empty if the database was up to date
}

func (b bundle) migrate(ctx context.Context, db DB, opts Options) (Report, error) {
	opts = opts.withDefaults()
	s, err := b.state(ctx, db)
	if err != nil {
		return Report{}, fmt.Errorf("migrate: %w", err)
	}
	if s.Standing == Absent || s.Standing == Behind {
		// The state was read without the lock, so it must be read again under the
		// lock.
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

// report converts the state before the migration into the result of Migrate.
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

// upgrade applies the pending files and returns the state before, read under the
// lock.
func (b bundle) upgrade(ctx context.Context, tx pgx.Tx, opts Options) (State, error) {
	if err := lock(ctx, tx, opts.Logger); err != nil {
		return State{}, err
	}
	s, err := b.state(ctx, tx)
	if err != nil {
		return State{}, err
	}
	if steps := b.steps(s); len(steps) > 0 {
		err = applyWithRetries(ctx, tx, steps, opts)
	}
	return s, err
}

// The isolation level matters: under a stricter one, a process that has waited for
// the lock would not see the migration that its predecessor committed. The role's
// time limits are set for its everyday statements, and would abort a long migration.
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
		log.Info("waiting for another process that migrates the database")
		_, err = tx.Exec(ctx, `select pg_advisory_xact_lock($1)`,
			pgx.QueryExecModeSimpleProtocol, int64(lockKey))
	}
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	return nil
}

// applyWithRetries repeats the steps until every lock is free. The attempts are
// savepoints in the transaction that holds the advisory lock: a rollback to the
// savepoint releases the tables at once, while other migrating processes keep waiting
// and make no attempts during the pauses.
func applyWithRetries(ctx context.Context, tx pgx.Tx, steps []Step, opts Options) error {
	pause := opts.LockTimeout
	for attempt := 1; ; attempt++ {
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			return apply(ctx, tx, steps, opts)
		})
		if !isLockFailure(err) {
			return err
		}
		opts.Logger.Warn("schema is in use, retrying", "attempt", attempt, "pause", pause, "error", err)
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w, while the schema is in use: %w", ctx.Err(), err)
		case <-time.After(pause):
		}
		pause = min(2*pause, 8*opts.LockTimeout)
	}
}

func isLockFailure(err error) bool {
	var pgErr *pgconn.PgError
	const lockNotAvailable, deadlockDetected = "55P03", "40P01"
	return errors.As(err, &pgErr) && (pgErr.Code == lockNotAvailable || pgErr.Code == deadlockDetected)
}

// scriptSettings make the SQL independent of the role: a role's search_path has no
// effect. Functions may use functions of later files, since bodies are not checked.
var scriptSettings = []string{
	"check_function_bodies = off",
	"search_path = ''",
	"client_min_messages = warning",
}

// restUpkeep takes the locks of the parts of upkeep, before any table: programs leave out a part that is locked. Upkeep
// locks tables in another order than a migration. If it was the first to wait, Postgres would end it in a deadlock before
// the migration gives up.
const restUpkeep = `
do $$
begin
  if exists (
    select from pg_catalog.pg_proc p join pg_catalog.pg_namespace n on n.oid = p.pronamespace
    where n.nspname = 'posthorn' and p.proname = 'upkeep_parts')
  then
    perform pg_catalog.pg_advisory_xact_lock(posthorn.lock_class('upkeep'), pg_catalog.hashtext(part))
    from pg_catalog.unnest(posthorn.upkeep_parts()) part;
  end if;
end $$;
`

func apply(ctx context.Context, tx pgx.Tx, steps []Step, opts Options) error {
	settings := fmt.Sprintf("set local lock_timeout = %d;\n", opts.LockTimeout.Milliseconds())
	for _, s := range scriptSettings {
		settings += "set local " + s + ";\n"
	}
	if _, err := tx.Exec(ctx, settings); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, restUpkeep); err != nil {
		return fmt.Errorf("wait for upkeep: %w", err)
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
