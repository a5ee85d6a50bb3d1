package pg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/multitracer"
	"github.com/jackc/pgx/v5/pgconn"
)

// A host that dies, or a firewall that forgets a connection, tells nobody. The
// operating system waits a quarter of an hour for an answer before it gives up.
// A monitor finds out sooner: where a connection has waited for a while, it asks
// the same address on a new connection. If that gets no answer either, the host
// is silent, and all connections to it are closed.
type monitor struct {
	dial           pgconn.DialFunc
	connectTimeout time.Duration
	several        bool // addresses are in the URL
	log            *slog.Logger

	mu     sync.Mutex
	conns  map[*watchedConn]struct{}
	silent map[string]time.Time // when an address was last found silent
	probed map[string]time.Time // when an address was last probed
}

const (
	suspectAfter = 5 * time.Second  // before a connection that waits is suspect
	probeTime    = 4 * time.Second  // for a new connection to get an answer
	passOver     = 10 * time.Second // a silent address, where there are others
	partingTime  = 2 * time.Second  // for canceling a statement and closing its connection
	pingTime     = 5 * time.Second  // for an idle connection of a pool, before it is used

	connectTime      = 10 * time.Second // if the URL says nothing of it: long enough for a server that sleeps
	connectTimeOfOne = 5 * time.Second  // of several addresses
)

func newMonitor(config *pgx.ConnConfig, log *slog.Logger) *monitor {
	m := &monitor{
		dial: config.DialFunc, log: log,
		conns: map[*watchedConn]struct{}{}, silent: map[string]time.Time{}, probed: map[string]time.Time{},
	}
	first := net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
	for _, other := range config.Fallbacks { // some of which differ only in TLS
		m.several = m.several || net.JoinHostPort(other.Host, strconv.Itoa(int(other.Port))) != first
	}
	m.connectTimeout = config.ConnectTimeout
	if m.connectTimeout == 0 {
		m.connectTimeout = connectTime
		if m.several {
			m.connectTimeout = connectTimeOfOne
		}
	}
	return m
}

// watch has connections that are made with config watched. If they are limited,
// their statements have deadlines too; see [Within].
func (m *monitor) watch(config *pgx.ConnConfig, limited bool) {
	config.DialFunc = m.connect
	config.ConnectTimeout = m.connectTimeout
	ours := pgx.QueryTracer(connectTracer{})
	if limited {
		ours = deadlineTracer{}
	}
	if config.Tracer != nil {
		ours = multitracer.New(config.Tracer, ours)
	}
	config.Tracer = ours
}

// connectTracer marks the contexts of those who connect. Without the mark it is
// pgx that wants to cancel a statement, whose context has ended.
type connectTracer struct{}

type connecting struct{}

func (connectTracer) TraceConnectStart(ctx context.Context, _ pgx.TraceConnectStartData) context.Context {
	return context.WithValue(ctx, connecting{}, true)
}

func (connectTracer) TraceConnectEnd(context.Context, pgx.TraceConnectEndData) {}

func (connectTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}

func (connectTracer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// connect dials. With several addresses, one that was silent a moment ago is
// passed over: each new connection would wait for it.
func (m *monitor) connect(ctx context.Context, network, address string) (net.Conn, error) {
	cancels := ctx.Value(connecting{}) == nil
	if (m.several || cancels) && m.wasSilent(address) {
		return nil, &silentError{address}
	}
	if cancels { // a pool gets no other connection meanwhile
		ctx, cancel := context.WithTimeout(ctx, partingTime)
		defer cancel()
		conn, err := m.dial(ctx, network, address)
		if err == nil {
			err = conn.SetDeadline(time.Now().Add(partingTime))
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
	c := &watchedConn{Conn: conn, monitor: m, network: network, address: address, opened: began, lastHeard: lastHeard(address)}
	c.timer = time.AfterFunc(suspectAfter, c.wait)
	c.timer.Stop()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.conns[c] = struct{}{}
	return c, nil
}

func (m *monitor) wasSilent(address string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Since(m.silent[address]) < passOver
}

// foundSilent closes all connections to an address, which nobody answers.
func (m *monitor) foundSilent(address string) {
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
		c.silent.Store(true)
		_ = c.Conn.Close() // nobody can do anything about it
	}
}

// answers notes that an address has answered on a new connection.
func (m *monitor) answers(address string) {
	m.mu.Lock()
	_, was := m.silent[address]
	delete(m.silent, address)
	m.mu.Unlock()
	if was {
		m.log.Info("the database answers again", "address", address)
	}
}

// suspect probes an address on which a connection has waited for a while.
func (m *monitor) suspect(network, address string) {
	m.mu.Lock()
	recently := time.Since(m.probed[address]) < suspectAfter/2 // by another connection
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
	}
}

// unanswered is called when a new connection has got no answer in time. A busy
// server may accept connections later than that, but it answers on open ones.
func (m *monitor) unanswered(address string, began time.Time) {
	if lastHeard(address).Load() < began.UnixNano() {
		m.foundSilent(address)
	}
}

// heard has the time, in nanoseconds, at which any connection of this process to an
// address last received something. All monitors of the process share it.
var heard sync.Map // of *atomic.Int64, by address

func lastHeard(address string) *atomic.Int64 {
	t, _ := heard.LoadOrStore(address, new(atomic.Int64))
	return t.(*atomic.Int64)
}

// probe asks whether the server speaks TLS, which it tells anyone. An error that
// comes at once is an answer too: then the other connections break by themselves.
func (m *monitor) probe(network, address string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), probeTime)
	defer cancel()
	conn, err := m.dial(ctx, network, address)
	if err != nil {
		return !isTimeout(err)
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline) // it would be closed already
	if _, err = conn.Write([]byte{0, 0, 0, 8, 4, 210, 22, 47}); err == nil {
		_, err = conn.Read(make([]byte, 1))
	}
	return !isTimeout(err)
}

func isTimeout(err error) bool {
	timeout, ok := errors.AsType[net.Error](err)
	return ok && timeout.Timeout()
}

// silentError is what becomes of connections to an address that is silent.
type silentError struct{ address string }

func (e *silentError) Error() string {
	return fmt.Sprintf("the database at %s does not answer", e.address)
}
func (e *silentError) Unwrap() error { return net.ErrClosed }
func (e *silentError) Hint() string {
	return "check the database's host and the network between; with several hosts in the URL, the next one is tried"
}

// watchedConn is a connection that notices when its peer is silent.
type watchedConn struct {
	net.Conn
	monitor          *monitor
	network, address string
	opened           time.Time

	heard     atomic.Bool   // something has arrived
	lastHeard *atomic.Int64 // from the address, on any connection
	silent    atomic.Bool   // it was closed because the peer is

	mu      sync.Mutex
	waiting int         // reads and writes that are under way
	timer   *time.Timer // runs while there are any
}

func (c *watchedConn) Read(b []byte) (int, error) {
	c.begin()
	n, err := c.Conn.Read(b)
	c.end()
	if n > 0 {
		c.lastHeard.Store(time.Now().UnixNano())
		if !c.heard.Swap(true) {
			c.monitor.answers(c.address)
		}
	}
	return n, c.explain(err)
}

func (c *watchedConn) Write(b []byte) (int, error) {
	c.begin()
	n, err := c.Conn.Write(b)
	c.end()
	return n, c.explain(err)
}

func (c *watchedConn) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting++; c.waiting == 1 {
		c.timer.Reset(suspectAfter)
	}
}

func (c *watchedConn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting--; c.waiting == 0 {
		c.timer.Stop()
	}
}

// wait is called when a read or a write has taken a while.
func (c *watchedConn) wait() {
	c.monitor.suspect(c.network, c.address)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting > 0 {
		c.timer.Reset(suspectAfter)
	}
}

func (c *watchedConn) explain(err error) error {
	if err != nil && c.silent.Load() {
		return &silentError{c.address}
	}
	return err
}

// SetDeadline ends a wait when pgx asks for that at once. A deadline that lies in
// the future is for a connection's last words, for which a pool would wait.
func (c *watchedConn) SetDeadline(t time.Time) error {
	if soon := time.Now().Add(partingTime); t.After(soon) {
		t = soon
	}
	return c.Conn.SetDeadline(t)
}

// Close also notes when nobody has answered for as long as connecting may take.
func (c *watchedConn) Close() error {
	m := c.monitor
	m.mu.Lock()
	_, open := m.conns[c]
	delete(m.conns, c)
	m.mu.Unlock()
	if open && !c.heard.Load() && time.Since(c.opened) > m.connectTimeout*9/10 {
		m.unanswered(c.address, c.opened)
	}
	return c.Conn.Close()
}
