package pg

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Pool is a connection pool for Posthorn's own statements. Its direct connections have
// settings for them, with plans that are made once, so handlers must not use it.
type Pool struct {
	*pgxpool.Pool

	// direct: prepared statements stay on the connection. They do not with a pooler
	// that gives each transaction another connection.
	direct   bool
	monitor  *monitor
	streams  streams
	filtered sync.Map // the ids of groups known to have subscriptions, whose conditions need a timeout in Take
}

// Open connects, detects a pooler in front of the server, and returns a pool that works
// with or without one. It keeps a query mode that config sets. A query mode without
// prepared statements is for a pooler.
//
// Each statement on the pool has a deadline, see [Within]. When an address of the database
// does not answer any more, its connections are closed, and log receives one warning.
func Open(ctx context.Context, config *pgxpool.Config, log *slog.Logger) (*Pool, error) {
	config = config.Copy()
	p := &Pool{monitor: newMonitor(config.ConnConfig, log)}
	p.monitor.beforeConnect = config.BeforeConnect
	p.monitor.watchPool(config, true)
	config.ConnConfig.OnNotice = onNotice(config.ConnConfig.OnNotice, log)
	var err error
	if config.ConnConfig.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		if p.direct, err = connectsDirectly(ctx, config.ConnConfig); err != nil {
			return nil, fmt.Errorf("connect: %w", err)
		}
		if !p.direct {
			config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		}
	}
	if p.direct {
		maps.Copy(config.ConnConfig.RuntimeParams, leaseSettings) // poolers refuse settings
	}
	if p.Pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return p, nil
}

// IdleTime is how long our pools keep a connection that nothing uses.
const IdleTime = time.Minute

// LetIdleGo closes the idle connections of a pool after [IdleTime], unless its URL sets a
// time: pgx keeps them for half an hour by default, as many as the busiest moment took.
func LetIdleGo(config *pgxpool.Config) {
	const byDefault = 30 * time.Minute
	if config.MaxConnIdleTime == byDefault {
		config.MaxConnIdleTime = IdleTime
	}
}

// Separate opens another pool of up to conns connections, with the settings and the monitor
// of p. It connects when it is used first. The caller closes it.
func (p *Pool) Separate(ctx context.Context, conns int32) (*Pool, error) {
	config := p.Config()
	config.MaxConns = conns
	separate, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return &Pool{Pool: separate, direct: p.direct, monitor: p.monitor}, nil
}

// Watch lets the monitor of p watch the connections that are made with config. Their
// statements, such as those of handlers, have no deadlines.
func (p *Pool) Watch(config *pgxpool.Config) { p.monitor.watchPool(config, false) }

// OpenLater returns a pool for statements with deadlines. It connects when it is used
// first.
func OpenLater(ctx context.Context, config *pgxpool.Config, log *slog.Logger) (*pgxpool.Pool, error) {
	config = config.Copy()
	m := newMonitor(config.ConnConfig, log)
	m.beforeConnect = config.BeforeConnect
	m.watchPool(config, true)
	return pgxpool.NewWithConfig(ctx, config)
}

// Connect opens one connection. Its statements have no deadlines, but end when the database
// does not answer any more. Log receives warnings of calls that have succeeded.
func Connect(ctx context.Context, config *pgx.ConnConfig, log *slog.Logger) (*pgx.Conn, error) {
	config = config.Copy()
	newMonitor(config, log).watch(config, false)
	config.OnNotice = onNotice(config.OnNotice, log)
	return pgx.ConnectConfig(ctx, config)
}

// watchPool watches the connections of a pool, and limits the pings before their reuse.
func (m *monitor) watchPool(config *pgxpool.Config, limited bool) {
	m.watch(config.ConnConfig, limited)
	m.watchReuse(config)
	watchPings(config)
	if config.PingTimeout == 0 {
		config.PingTimeout = pingTime
	}
}

// leaseSettings are for the function lease_events, which is inlined into its statement and
// so cannot have settings of its own. Planning it over all partitions costs as much as
// running it for a small batch, so the plan is kept. A kept plan must suit all later states
// of the tables, so it uses indexes only. Their estimated cost would make Postgres compile
// the plan, hence no jit. A parallel plan would lose the order of the events.
var leaseSettings = map[string]string{
	"plan_cache_mode":                 "force_generic_plan",
	"enable_seqscan":                  "off",
	"enable_bitmapscan":               "off",
	"jit":                             "off",
	"max_parallel_workers_per_gather": "0",
}

// connectsDirectly compares the process id that the connection got when it was opened with
// that of the process which runs its statements. Poolers return ids of their own.
func connectsDirectly(ctx context.Context, config *pgx.ConnConfig) (bool, error) {
	config = config.Copy()
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return false, err
	}
	defer func() { _ = conn.Close(ctx) }()
	var pid uint32
	if err := conn.QueryRow(ctx, "select pg_backend_pid()").Scan(&pid); err != nil {
		return false, err
	}
	return pid == conn.PgConn().PID(), nil
}

// Direct reports whether the pool connects to the server without a pooler.
func (p *Pool) Direct() bool { return p.direct }
