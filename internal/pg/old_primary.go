package pg

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
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
//
// A tenant that has moved leaves two primaries of one cluster, and a program may use both. So a
// timeline counts for the addresses of the URL through which it was seen, and for all pools whose
// URL has one of them. Behind a pooler two sides may have one address, and differ in the name of
// the database.

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

// clusters are the facts that this process has seen of each cluster.
var clusters = seenClusters{timelines: map[clusterAt]uint64{}, synchronous: map[string]bool{}}

type seenClusters struct {
	mu          sync.Mutex
	timelines   map[clusterAt]uint64 // the highest of a primary
	synchronous map[string]bool      // it has had synchronous standbys, by system identifier
}

// clusterAt is a cluster at one place of a URL, see [placesOf].
type clusterAt struct{ system, place string }

// placesOf returns the addresses of a URL, each with the name of the database.
func placesOf(config *pgconn.Config) []string {
	places := []string{placeOf(config.Host, config.Port, config.Database)}
	for _, other := range config.Fallbacks { // some differ only in TLS
		if place := placeOf(other.Host, other.Port, config.Database); !slices.Contains(places, place) {
			places = append(places, place)
		}
	}
	return places
}

func placeOf(host string, port uint16, database string) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port))) + "/" + database
}

func (s *seenClusters) note(places []string, i identity, synchronous bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, place := range places {
		at := clusterAt{i.system, place}
		s.timelines[at] = max(s.timelines[at], i.timeline)
	}
	s.synchronous[i.system] = s.synchronous[i.system] || synchronous
}

// newer returns the highest timeline that was seen at some places, if that is higher.
func (s *seenClusters) newer(places []string, i identity) (timeline uint64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, place := range places {
		timeline = max(timeline, s.timelines[clusterAt{i.system, place}])
	}
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

// watchPings keeps a pool from a ping of a connection whose server was asked a moment ago, or is asked again by isCurrent. To the
// pool a connection that took a second to make has been idle for so long; with a ping beside the question, a database that takes a
// second for each statement would not answer within the time that a request waits.
func watchPings(config *pgxpool.Config) {
	ping := config.ShouldPing
	config.ShouldPing = func(ctx context.Context, p pgxpool.ShouldPingParams) bool {
		if ping != nil {
			return ping(ctx, p)
		}
		return p.IdleDuration > pingAfter && !isAsked(p.Conn.PgConn())
	}
}

// pingAfter is how long a connection is idle before it is pinged.
const pingAfter = time.Second

// isAsked reports whether the question for the identity of the server takes the place of a ping.
func isAsked(conn *pgconn.PgConn) bool {
	c := watchedBelow(conn)
	if c == nil {
		return false
	}
	since := time.Since(c.identity.Load().asked)
	return since < pingAfter || since >= askAgain
}

// isCurrent reports whether a connection may be used again.
func (m *monitor) isCurrent(ctx context.Context, conn *pgconn.PgConn) bool {
	c := watchedBelow(conn)
	if c == nil {
		return true
	}
	i := *c.identity.Load()
	if _, old := clusters.newer(m.places, i); old {
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
	clusters.note(m.places, i, len(row[2]) > 0)
	if newest, old := clusters.newer(m.places, i); old {
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
