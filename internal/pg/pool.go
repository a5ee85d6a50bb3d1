package pg

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Pool is a connection pool for Posthorn's own statements. On a direct
// connection its sessions are set up for them, with plans that are made once;
// so it is not for the statements of handlers.
type Pool struct {
	*pgxpool.Pool

	// direct: the server keeps what a session has prepared. A pooler that gives
	// each transaction another connection does not.
	direct   bool
	monitor  *monitor
	streams  streams
	filtered sync.Map // the ids of groups that are known to have subscriptions: Take runs conditions, and has a timeout
}

// Open connects, finds out whether there is a pooler in between, and returns a
// pool that works either way. A query mode that config sets is kept, and taken
// to mean a pooler if it avoids prepared statements.
//
// Each statement on the pool has a deadline, see [Within]. When an address of the
// database falls silent, log says so once, and its connections are closed.
func Open(ctx context.Context, config *pgxpool.Config, log *slog.Logger) (*Pool, error) {
	config = config.Copy()
	p := &Pool{monitor: newMonitor(config.ConnConfig, log)}
	p.monitor.watchPool(config, true)
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
		maps.Copy(config.ConnConfig.RuntimeParams, leaseSettings) // poolers refuse them
	}
	if p.Pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return p, nil
}

// Watch has connections that are made with config watched as those of p are. It is
// for statements that are not ours, such as those of handlers: they have no deadlines.
func (p *Pool) Watch(config *pgxpool.Config) { p.monitor.watchPool(config, false) }

// OpenLater returns a pool for statements with deadlines, which connects when it
// is used.
func OpenLater(ctx context.Context, config *pgxpool.Config, log *slog.Logger) (*pgxpool.Pool, error) {
	config = config.Copy()
	newMonitor(config.ConnConfig, log).watchPool(config, true)
	return pgxpool.NewWithConfig(ctx, config)
}

// Connect opens one connection. Its statements have no deadlines, but end when the
// database falls silent.
func Connect(ctx context.Context, config *pgx.ConnConfig, log *slog.Logger) (*pgx.Conn, error) {
	config = config.Copy()
	newMonitor(config, log).watch(config, false)
	return pgx.ConnectConfig(ctx, config)
}

// watchPool has the connections of a pool watched, before they are used again too.
func (m *monitor) watchPool(config *pgxpool.Config, limited bool) {
	m.watch(config.ConnConfig, limited)
	if config.PingTimeout == 0 {
		config.PingTimeout = pingTime
	}
}

// leaseSettings are for lease_events, which is inlined into our statement and so
// has no settings of its own. Planning it over the partitions for each call costs
// as much as to run it for a small batch, so the plan is kept. It outlives the
// state of the tables that it was made for, so it goes by index alone; that looks
// so dear to old planners that they would compile it, and in parallel the events
// would lose their order.
var leaseSettings = map[string]string{
	"plan_cache_mode":                 "force_generic_plan",
	"enable_seqscan":                  "off",
	"enable_bitmapscan":               "off",
	"jit":                             "off",
	"max_parallel_workers_per_gather": "0",
}

// connectsDirectly compares the process id that the connection was told with
// that of the process which answers. Poolers make up ids of their own, since
// what is behind them changes.
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

// Direct reports whether the pool talks to the server itself.
func (p *Pool) Direct() bool { return p.direct }
