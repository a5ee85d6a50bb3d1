package pg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// After a failover the old primary may come back, and accept connections: whatever is written
// there is at the wrong server. Its timeline is lower than that of the new one, which has the
// same system identifier. So this process keeps the highest timeline that it has seen of each
// cluster, asks each server on each new connection, and once a minute, and leaves one with a
// lower timeline. A process that has seen only the old primary cannot know.

// askAgain is how long a connection is used before its server is asked again: a pooler or an
// address may have moved to another one.
const askAgain = time.Minute

// identitySQL asks for facts that each role may read. A standby that is read has no timeline of
// its own.
const identitySQL = `
	select s.system_identifier,
		case when pg_catalog.pg_is_in_recovery() then '' else pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8) end,
		pg_catalog.current_setting('synchronous_standby_names')
	from pg_catalog.pg_control_system() s`

// identity is the answer of a server to identitySQL.
type identity struct {
	system   string // the system identifier; "" if the server does not tell
	timeline uint64 // 0 of a standby
	asked    time.Time
}

// clusters are the facts that this process has seen of each cluster, by system identifier.
var clusters = seenClusters{timelines: map[string]uint64{}, synchronous: map[string]bool{}}

type seenClusters struct {
	mu          sync.Mutex
	timelines   map[string]uint64 // the highest of a primary
	synchronous map[string]bool   // it has had synchronous standbys
}

func (s *seenClusters) note(i identity, synchronous bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.timelines[i.system] = max(s.timelines[i.system], i.timeline)
	s.synchronous[i.system] = s.synchronous[i.system] || synchronous
}

// newer returns the highest timeline that was seen, if that is higher.
func (s *seenClusters) newer(i identity) (timeline uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	timeline = s.timelines[i.system]
	return timeline, i.timeline != 0 && i.timeline < timeline
}

func (s *seenClusters) isSynchronous(system string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.synchronous[system]
}

// watchIdentity lets the connections of a configuration refuse old primaries. With several
// addresses in the URL, the next one is tried.
func (m *monitor) watchIdentity(config *pgconn.Config) {
	validate := config.ValidateConnect
	config.ValidateConnect = func(ctx context.Context, conn *pgconn.PgConn) error {
		if validate != nil {
			if err := validate(ctx, conn); err != nil {
				return err
			}
		}
		return m.ask(ctx, conn)
	}
}

// watchReuse lets a pool leave the connections to an old primary.
func (m *monitor) watchReuse(config *pgxpool.Config) {
	prepare := config.PrepareConn
	if before := config.BeforeAcquire; prepare == nil && before != nil { //nolint:staticcheck // deprecated, but the program's pool may have it
		prepare = func(ctx context.Context, conn *pgx.Conn) (bool, error) { return before(ctx, conn), nil }
	}
	config.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
		if !m.isCurrent(ctx, conn.PgConn()) {
			return false, nil
		}
		if prepare == nil {
			return true, nil
		}
		return prepare(ctx, conn)
	}
}

// isCurrent reports whether a connection may be used again.
func (m *monitor) isCurrent(ctx context.Context, conn *pgconn.PgConn) bool {
	c := watchedBelow(conn)
	if c == nil {
		return true
	}
	i := *c.identity.Load()
	if _, old := clusters.newer(i); old {
		return false
	}
	if time.Since(i.asked) < askAgain {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, pingTime)
	defer cancel()
	return m.ask(ctx, conn) == nil
}

// ask asks the server of a connection, and fails if it is an old primary.
func (m *monitor) ask(ctx context.Context, conn *pgconn.PgConn) error {
	c := watchedBelow(conn)
	if c == nil {
		return nil
	}
	results, err := conn.Exec(ctx, identitySQL).ReadAll()
	if sqlState(err) != "" { // the server does not tell
		c.identity.Store(&identity{asked: time.Now()})
		return nil
	} else if err != nil {
		return err
	}
	row := results[0].Rows[0]
	i := identity{system: string(row[0]), asked: time.Now()}
	i.timeline, _ = strconv.ParseUint(string(row[1]), 16, 32) // 0 if it is empty
	c.identity.Store(&i)
	clusters.note(i, len(row[2]) > 0)
	if newest, old := clusters.newer(i); old {
		m.warnOfOldPrimary(c.address, i.timeline, newest)
		return &oldPrimaryError{c.address, i.timeline, newest}
	}
	return nil
}

func (m *monitor) warnOfOldPrimary(address string, timeline, newest uint64) {
	m.mu.Lock()
	known := m.old[address] == newest
	m.old[address] = newest
	m.mu.Unlock()
	if !known {
		m.log.Warn("an old primary of the database is left: a failover has happened since", "address", address, "timeline", timeline, "newest", newest)
	}
}

// oldPrimaryError is the error of connections to an old primary.
type oldPrimaryError struct {
	address          string
	timeline, newest uint64
}

func (e *oldPrimaryError) Error() string {
	return fmt.Sprintf("the database at %s is an old primary, of timeline %d: this process has seen timeline %d of the same cluster", e.address, e.timeline, e.newest)
}
func (e *oldPrimaryError) Unwrap() error { return net.ErrClosed }
func (e *oldPrimaryError) Hint() string {
	return "stop that server or take its address away, and make it a standby of the new primary, see docs/standbys.md; if it was restored on purpose, restart this process"
}

// Cancel requests.
//
// When the context of a statement ends, pgx asks the server to cancel the statement. That would
// also cancel the commit's wait for a synchronous standby: the transaction would become visible,
// and consumers would act on events that a failover removes. So there are no cancel requests to
// servers with synchronous standbys. The connection is closed, and the server ends by itself.

// noNetwork is the network of connections that get no cancel requests.
const noNetwork = "none"

var errNoCancel = errors.New("the statement may be waiting for a synchronous standby, so it is not cancelled")

type noAddress struct{}

func (noAddress) Network() string { return noNetwork }
func (noAddress) String() string  { return "" }

// RemoteAddr is the address to which pgx sends cancel requests. It asks for it only then.
func (c *watchedConn) RemoteAddr() net.Addr {
	if clusters.isSynchronous(c.identity.Load().system) {
		return noAddress{}
	}
	return c.Conn.RemoteAddr()
}
