package pg

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A connection can be forgotten while others to the same address work: a proxy hangs, or a
// firewall answers in place of the server. When an address answers, and a statement there has
// received nothing for probeAfter, the monitor asks the server on another connection about the
// backend of that statement. If the backend is gone, or waits for its client, then the answer
// has been lost on its way: the monitor ends the backend, which may hold locks, and closes the
// connection.
const (
	// answerTime is how long an answer may be on its way once the server has sent it.
	answerTime = time.Second
	// slowestUpload is the slowest speed of a statement to the server, in bytes a second.
	slowestUpload = 64 << 10
)

// suspect is a connection whose statement has received nothing for a while.
type suspect struct {
	*watchedConn
	bytes int64 // that it had received when it came under suspicion
}

// closeForgotten closes those connections to an address that were forgotten, while the address
// answers. If it cannot learn that, because the server has no more connections for example, the
// deadlines of statements remain.
func (m *monitor) closeForgotten(network, address string) {
	suspects := m.suspects(address)
	if len(suspects) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), probeTime+answerTime)
	defer cancel()
	if err := m.askAbout(ctx, network, address, suspects); err != nil {
		m.log.Debug("cannot ask the database about a connection that waits", "address", address, "error", err)
	}
}

// suspects returns the connections to an address that may be forgotten, by the ids of their
// backends. A pooler has ids of its own, by which nobody can ask.
func (m *monitor) suspects(address string) map[uint32]suspect {
	m.mu.Lock()
	defer m.mu.Unlock()
	suspects := map[uint32]suspect{}
	for c := range m.conns {
		if pid := c.backend.Load(); c.address == address && pid != 0 && !m.pooled[address] && c.isSuspect() {
			suspects[pid] = suspect{c, c.bytes.Load()}
		}
	}
	return suspects
}

// askAbout asks twice, so that an answer that is on its way can arrive.
func (m *monitor) askAbout(ctx context.Context, network, address string, suspects map[uint32]suspect) error {
	conn, err := m.connectUnwatched(ctx, network, address)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	var own uint32
	if err := conn.QueryRow(ctx, "select pg_catalog.pg_backend_pid()").Scan(&own); err != nil {
		return err
	}
	if own != conn.PgConn().PID() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.pooled[address] = true
		return nil
	}
	if err := keepResting(ctx, conn, suspects); err != nil || len(suspects) == 0 {
		return err
	}
	if err := sleep(ctx, answerTime); err != nil {
		return err
	}
	if err := keepResting(ctx, conn, suspects); err != nil || len(suspects) == 0 {
		return err
	}
	return m.endForgotten(ctx, conn, address, suspects)
}

// connectUnwatched opens a connection to one address of the database that the monitor does not
// watch.
func (m *monitor) connectUnwatched(ctx context.Context, network, address string) (*pgx.Conn, error) {
	config := m.config.Copy()
	if m.beforeConnect != nil {
		if err := m.beforeConnect(ctx, config); err != nil {
			return nil, err
		}
	}
	config.DialFunc = func(ctx context.Context, n, a string) (net.Conn, error) {
		if n != network || a != address {
			return nil, errOtherAddress
		}
		return m.dial(ctx, n, a)
	}
	config.ConnectTimeout = probeTime
	config.Tracer, config.OnNotice, config.OnNotification = nil, nil, nil
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	return pgx.ConnectConfig(ctx, config)
}

var errOtherAddress = errors.New("this is another address of the database")

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// restingBackends are the backends of $1 that wait for their clients, and those that are gone. A
// standby says nothing of those that it does not have: another standby may have them, under the
// same address.
const restingBackends = `
	select p.pid::bigint
	from unnest($1::int[]) p(pid)
	left join pg_catalog.pg_stat_activity a
		on a.pid = p.pid and a.usename = session_user and a.datname = current_database()
	where case when a.pid is null then not pg_catalog.pg_is_in_recovery() else a.wait_event in ('ClientRead', 'ClientWrite') end`

func backendsOf(suspects map[uint32]suspect) []int32 {
	ids := make([]int32, 0, len(suspects))
	for pid := range suspects {
		ids = append(ids, int32(pid))
	}
	return ids
}

// keepResting removes those that have received something, or whose backend works.
func keepResting(ctx context.Context, conn *pgx.Conn, suspects map[uint32]suspect) error {
	rows, err := conn.Query(ctx, restingBackends, backendsOf(suspects))
	if err != nil {
		return err
	}
	resting, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return err
	}
	maps.DeleteFunc(suspects, func(pid uint32, s suspect) bool {
		return !slices.Contains(resting, int64(pid)) || s.watchedConn.bytes.Load() != s.bytes || !s.isSuspect()
	})
	return nil
}

// endForgotten closes the connections, and ends their backends: those do not learn of it, and keep
// the locks of their transactions.
func (m *monitor) endForgotten(ctx context.Context, conn *pgx.Conn, address string, forgotten map[uint32]suspect) error {
	m.log.Warn("connections to the database were forgotten on their way, and are closed", "address", address, "connections", len(forgotten))
	for _, s := range forgotten {
		s.closeFor(&forgottenError{address})
	}
	_, err := conn.Exec(ctx, `
		select pg_catalog.pg_terminate_backend(a.pid) from pg_catalog.pg_stat_activity a
		where a.pid = any ($1::int[]) and a.usename = session_user and a.datname = current_database()
			and a.wait_event in ('ClientRead', 'ClientWrite')`, backendsOf(forgotten))
	return err
}

// forgottenError is the error of a connection that was forgotten.
type forgottenError struct{ address string }

func (e *forgottenError) Error() string {
	return fmt.Sprintf("the connection to the database at %s was forgotten on its way: its answer has been lost", e.address)
}
func (e *forgottenError) Unwrap() error { return net.ErrClosed }
func (e *forgottenError) Hint() string {
	return "the statement is tried again, if that is safe; check the proxies and firewalls between, which drop connections without closing them"
}

// watchedOf returns the monitored connection below a connection of pgx, or nil.
func watchedOf(conn *pgx.Conn) *watchedConn { return watchedBelow(conn.PgConn()) }

func watchedBelow(conn *pgconn.PgConn) *watchedConn {
	c := conn.Conn()
	for {
		switch below := c.(type) {
		case *watchedConn:
			return below
		case interface{ NetConn() net.Conn }: // TLS
			c = below.NetConn()
		default:
			return nil
		}
	}
}

// noteStatements notes that a statement has begun on a connection, or has ended: until then it
// awaits an answer. A connection that awaits notifications, or copies data, does not.
func noteStatements(conn *pgx.Conn, n int32) {
	if c := watchedOf(conn); c != nil {
		c.statements.Add(n)
	}
}
