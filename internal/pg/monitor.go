package pg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgconn"
)

// A monitor notices when a server does not answer any more, for example because its host
// has died or a firewall has dropped the connection. The operating system would wait for a
// quarter of an hour. When a connection has waited for a while, the monitor probes the same
// address on a new connection. If that gets no answer either, the address is silent, and
// the monitor closes all connections to it. If the address answers, single connections may have
// been forgotten, see [monitor.closeForgotten].
type monitor struct {
	config         *pgx.ConnConfig // as it was before the monitor watched it
	beforeConnect  func(context.Context, *pgx.ConnConfig) error
	dial           pgconn.DialFunc
	connectTimeout time.Duration
	places         []string // the addresses of the URL, see [placesOf]
	severalHosts   bool     // there are several
	log            *slog.Logger

	mu     sync.Mutex
	conns  map[*watchedConn]struct{}
	silent map[string]time.Time // when an address was last found silent
	probed map[string]time.Time // when an address was last probed
	pooled map[string]bool      // a pooler answers at the address
	old    map[string]uint64    // the timeline of whose primary an address was left last
}

const (
	probeAfter = 5 * time.Second  // the time that a connection waits before its address is probed
	probeTime  = 4 * time.Second  // the time that a probe waits for an answer
	skipTime   = 10 * time.Second // the time that a silent address is skipped, if there are others
	closeTime  = 2 * time.Second  // for canceling a statement and closing its connection
	pingTime   = 5 * time.Second  // for an idle connection of a pool, before it is used

	// If the URL has no connect_timeout:
	connectTime      = 10 * time.Second // long enough for a server that starts on demand
	connectTimeOfOne = 5 * time.Second  // for each of several addresses
)

func newMonitor(config *pgx.ConnConfig, log *slog.Logger) *monitor {
	m := &monitor{
		config: config.Copy(), dial: config.DialFunc, log: log,
		conns: map[*watchedConn]struct{}{}, silent: map[string]time.Time{}, probed: map[string]time.Time{}, pooled: map[string]bool{}, old: map[string]uint64{},
	}
	m.places = placesOf(&config.Config)
	m.severalHosts = len(m.places) > 1
	m.connectTimeout = config.ConnectTimeout
	if m.connectTimeout == 0 {
		m.connectTimeout = connectTime
		if m.severalHosts {
			m.connectTimeout = connectTimeOfOne
		}
	}
	return m
}

// watch watches the connections that are made with config. If limited, their statements
// have deadlines, see [Within].
func (m *monitor) watch(config *pgx.ConnConfig, limited bool) {
	config.DialFunc = m.connect
	reportUnconfirmed(&config.Config)
	m.watchIdentity(&config.Config)
	config.ConnectTimeout = m.connectTimeout
	tracer := pgx.QueryTracer(statementTracer{})
	if limited {
		tracer = deadlineTracer{}
	}
	if config.Tracer != nil {
		tracer = multitracer.New(config.Tracer, tracer)
	}
	config.Tracer = tracer
}

// connect dials. If there are several addresses, it skips one that was silent a moment ago,
// since each new connection would wait for it.
func (m *monitor) connect(ctx context.Context, network, address string) (net.Conn, error) {
	if network == noNetwork {
		return nil, errNoCancel
	}
	cancels := ctx.Value(connecting{}) == nil
	if (m.severalHosts || cancels) && m.wasSilent(address) {
		return nil, &silentError{address}
	}
	if cancels { // the pool waits meanwhile
		ctx, cancel := context.WithTimeout(ctx, closeTime)
		defer cancel()
		conn, err := m.dial(ctx, network, address)
		if err == nil {
			err = conn.SetDeadline(time.Now().Add(closeTime))
		}
		return conn, err
	}
	began := time.Now()
	conn, err := m.dial(ctx, network, address)
	if err != nil {
		if isTimeout(err) {
			m.unanswered(address, began)
		}
		return nil, err
	}
	c := &watchedConn{Conn: conn, monitor: m, network: network, address: address, opened: began, active: began, lastReceived: lastReceived(address)}
	c.identity.Store(&identity{asked: began})
	c.timer = time.AfterFunc(probeAfter, c.wait)
	c.timer.Stop()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conns[c] = struct{}{}
	return c, nil
}

func (m *monitor) wasSilent(address string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Since(m.silent[address]) < skipTime
}

// closeSilent closes all connections to an address that does not answer.
func (m *monitor) closeSilent(address string) {
	m.mu.Lock()
	_, known := m.silent[address]
	m.silent[address] = time.Now()
	var conns []*watchedConn
	for c := range m.conns {
		if c.address == address {
			conns = append(conns, c)
		}
	}
	m.mu.Unlock()
	if !known {
		m.log.Warn("the database does not answer; its connections are closed", "address", address)
	}
	for _, c := range conns {
		c.closeFor(&silentError{address})
	}
}

// answered records that an address has answered on a new connection.
func (m *monitor) answered(address string) {
	m.mu.Lock()
	_, was := m.silent[address]
	delete(m.silent, address)
	m.mu.Unlock()
	if was {
		m.log.Info("the database answers again", "address", address)
	}
}

// check probes an address from which a connection awaits an answer. If the address answers, it
// looks for connections that were forgotten.
func (m *monitor) check(network, address string) {
	m.mu.Lock()
	recently := time.Since(m.probed[address]) < probeAfter/2 // for another connection
	if !recently {
		m.probed[address] = time.Now()
	}
	m.mu.Unlock()
	if recently {
		return
	}
	began := time.Now()
	if !m.probe(network, address) {
		m.unanswered(address, began)
		return
	}
	m.closeForgotten(network, address)
}

// unanswered is called when a new connection has got no answer in time. It closes the
// connections unless one of them has got an answer meanwhile: a busy server may be slow to
// accept new ones.
func (m *monitor) unanswered(address string, began time.Time) {
	if lastReceived(address).Load() < began.UnixNano() {
		m.closeSilent(address)
	}
}

// received has the time, in nanoseconds, at which a connection of this process last
// received data from an address. All monitors of the process share it.
var received sync.Map // of *atomic.Int64, by address

func lastReceived(address string) *atomic.Int64 {
	t, _ := received.LoadOrStore(address, new(atomic.Int64))
	return t.(*atomic.Int64)
}

// probe reports whether a server answers. It asks whether the server supports TLS, which
// needs no authentication. An immediate error is an answer too: then the other connections
// fail by themselves.
func (m *monitor) probe(network, address string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	conn, err := m.dial(ctx, network, address)
	if err != nil {
		return !isTimeout(err)
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline) // fails only if the connection is closed
	if _, err = conn.Write([]byte{0, 0, 0, 8, 4, 210, 22, 47}); err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	return !isTimeout(err)
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// silentError is the error of connections to a silent address.
type silentError struct{ address string }

func (e *silentError) Error() string {
	return fmt.Sprintf("the database at %s does not answer", e.address)
}
func (e *silentError) Unwrap() error { return net.ErrClosed }
func (e *silentError) Hint() string {
	return "check the database's host and the network between; with several hosts in the URL, the next one is tried"
}

// watchedConn is a connection that is probed when it waits for a while.
type watchedConn struct {
	net.Conn
	monitor          *monitor
	network, address string
	opened           time.Time

	answered     atomic.Bool           // data has arrived
	bytes        atomic.Int64          // that have arrived
	lastReceived *atomic.Int64         // the time of the last data from the address, on any connection
	reason       atomic.Pointer[error] // because of which the monitor has closed it

	backend    atomic.Uint32 // the id of the process of the server; 0 before the connection is made
	statements atomic.Int32  // in progress

	identity atomic.Pointer[identity] // of the server

	mu               sync.Mutex
	reading, writing int         // reads and writes in progress
	timer            *time.Timer // runs while there are any
	active           time.Time   // when a write ended or data arrived last, or a read began
	uploaded         int         // bytes written since data arrived last
}

func (c *watchedConn) Read(b []byte) (int, error) {
	c.begin(&c.reading)
	n, err := c.Conn.Read(b)
	c.end(&c.reading, n, 0)
	if n > 0 {
		c.bytes.Add(int64(n))
		c.lastReceived.Store(time.Now().UnixNano())
		if !c.answered.Swap(true) {
			c.monitor.answered(c.address)
		}
	}
	return n, c.explain(err)
}

func (c *watchedConn) Write(b []byte) (int, error) {
	c.begin(&c.writing)
	n, err := c.Conn.Write(b)
	c.end(&c.writing, 0, n)
	return n, c.explain(err)
}

func (c *watchedConn) begin(kind *int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*kind++
	if c.reading+c.writing == 1 {
		c.active = time.Now()
		c.timer.Reset(probeAfter)
	}
}

func (c *watchedConn) end(kind *int, received, written int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*kind--
	if c.reading+c.writing == 0 {
		c.timer.Stop()
	}
	c.active = time.Now()
	if c.uploaded += written; received > 0 {
		c.uploaded = 0
	}
}

// wait is called when a read or a write has taken a while.
func (c *watchedConn) wait() {
	c.monitor.check(c.network, c.address)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reading+c.writing > 0 {
		c.timer.Reset(probeAfter)
	}
}

// isSuspect reports whether a statement has waited for an answer for a while. One that is long
// may still be on its way to the server.
func (c *watchedConn) isSuspect() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	patience := probeAfter + time.Duration(c.uploaded)*time.Second/slowestUpload
	return c.statements.Load() > 0 && c.reading > 0 && c.writing == 0 && time.Since(c.active) >= patience
}

// closeFor closes the connection below for a reason, which its statements return.
func (c *watchedConn) closeFor(reason error) {
	c.reason.CompareAndSwap(nil, &reason)
	_ = c.Conn.Close() // there is no remedy for an error
}

func (c *watchedConn) explain(err error) error {
	if reason := c.reason.Load(); reason != nil && err != nil {
		return *reason
	}
	return err
}

// SetDeadline shortens deadlines. pgx sets one in the past to end a wait, and one in the
// future to close a connection, for which the pool waits.
func (c *watchedConn) SetDeadline(t time.Time) error {
	if soon := time.Now().Add(closeTime); t.After(soon) {
		t = soon
	}
	return c.Conn.SetDeadline(t)
}

// Close also notices a server that has accepted a connection, and has not answered until
// the timeout for connecting.
func (c *watchedConn) Close() error {
	m := c.monitor
	m.mu.Lock()
	_, open := m.conns[c]
	delete(m.conns, c)
	m.mu.Unlock()
	if open && !c.answered.Load() && time.Since(c.opened) > m.connectTimeout*9/10 {
		m.unanswered(c.address, c.opened)
	}
	return c.Conn.Close()
}
