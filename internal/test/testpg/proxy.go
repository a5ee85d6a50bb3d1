package testpg

import (
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Proxy forwards connections between a test and its Postgres. It can stop forwarding
// without closing a connection.
type Proxy struct {
	database string
	server   net.Addr // address of the proxy
	network  string   // of the address of Postgres
	address  string

	mu         sync.Mutex
	statements *Statements // counts them; may be nil
	silent     bool
	unanswered int // connections without an answer that the client has closed
	conns      map[*proxied]struct{}
}

// proxied is the connection of a client.
type proxied struct {
	client, server net.Conn // server is nil if the client gets no answer
	mute           bool     // the client does not learn that the server has ended the connection
	hangs          bool     // nothing is forwarded, and the server does not learn of the client's end
}

// NewProxy runs a proxy in front of a database until the test ends.
func NewProxy(t testing.TB, database string) *Proxy {
	t.Helper()
	config, err := pgx.ParseConfig(database)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{database: database, server: listener.Addr(), conns: map[*proxied]struct{}{}}
	p.network, p.address = pgconn.NetworkAddress(config.Host, config.Port)
	var serving sync.WaitGroup
	serving.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // the test has ended
			}
			serving.Go(func() { p.serve(client) })
		}
	})
	t.Cleanup(func() {
		listener.Close()
		p.mu.Lock()
		for c := range p.conns {
			_ = c.client.Close() // ends serve
			c.hangUp()
		}
		p.mu.Unlock()
		serving.Wait()
	})
	return p
}

// URL returns the database's URL with two hosts: the proxy, and the server itself.
func (p *Proxy) URL(t testing.TB) string {
	t.Helper()
	u, err := url.Parse(p.database)
	if err != nil || u.Port() == "" {
		t.Fatalf("the database's URL needs a host and a port: %v", err)
	}
	u.Host = p.server.String() + "," + u.Host
	return u.String()
}

// Address is the address of the proxy.
func (p *Proxy) Address() string { return p.server.String() }

// Silence simulates the death of the host: the sessions on the server end, and
// neither open nor new connections get an answer.
func (p *Proxy) Silence() { p.mute(true) }

// Forget simulates a firewall that loses its state: open connections get no more
// answers, and new ones work.
func (p *Proxy) Forget() { p.mute(false) }

// Redirect ends the open connections, and forwards new ones to another database, as after a
// failover.
func (p *Proxy) Redirect(t testing.TB, database string) {
	t.Helper()
	config, err := pgx.ParseConfig(database)
	if err != nil {
		t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.database = database
	p.network, p.address = pgconn.NetworkAddress(config.Host, config.Port)
	for c := range p.conns {
		c.hangUp()
	}
}

// Hang simulates a proxy that hangs: it forwards nothing on open connections, and closes
// neither side of them. New ones work.
func (p *Proxy) Hang() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.mute, c.hangs = true, true
	}
}

// Busy simulates a server that has no time for new connections: they get no answer,
// while open connections work.
func (p *Proxy) Busy() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = true
}

// Unanswered returns how many clients have closed a connection that got no answer.
func (p *Proxy) Unanswered() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.unanswered
}

// Speak forwards new connections again.
func (p *Proxy) Speak() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = false
}

func (p *Proxy) mute(silent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = silent
	for c := range p.conns {
		c.mute = true
		c.hangUp()
	}
}

func (c *proxied) hangUp() {
	if c.server != nil {
		_ = c.server.Close() // it may be closed already
	}
}

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	c := p.open(client)
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if c.server == nil {
			p.unanswered++
		}
		delete(p.conns, c)
	}()
	if c.server != nil {
		var back sync.WaitGroup
		defer back.Wait()
		back.Go(func() {
			_, _ = io.Copy(p.forwarding(c, client), c.server) // ends when either side closes
			if !p.isMute(c) {
				_ = client.Close()
			}
		})
		_, _ = io.Copy(p.forwarding(c, p.counted(c.server)), client)
		if !p.isHanging(c) {
			c.hangUp()
		}
	}
	if p.isMute(c) {
		_, _ = io.Copy(io.Discard, client)
	}
}

// forwarding is the way to one side of a connection, on which data is lost while the proxy hangs.
func (p *Proxy) forwarding(c *proxied, to io.Writer) io.Writer {
	return writerFunc(func(b []byte) (int, error) {
		if p.isHanging(c) {
			return len(b), nil
		}
		return to.Write(b)
	})
}

type writerFunc func(b []byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func (p *Proxy) isHanging(c *proxied) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return c.hangs
}

// counted is the way to the server, on which statements are counted if that was asked for.
func (p *Proxy) counted(server io.Writer) io.Writer {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.statements == nil {
		return server
	}
	return io.MultiWriter(server, p.statements.frontend())
}

// open connects to Postgres, unless the proxy is silent.
func (p *Proxy) open(client net.Conn) *proxied {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := &proxied{client: client, mute: p.silent}
	if !c.mute {
		var err error
		c.server, err = net.Dial(p.network, p.address)
		c.mute = err != nil
	}
	p.conns[c] = struct{}{}
	return c
}

func (p *Proxy) isMute(c *proxied) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return c.mute
}
