package server

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
)

const (
	maxStreamClients = 20          // besides the server's own client
	idleClientTime   = time.Minute // from the end of the last stream until a client is closed
)

// streamClients are the clients that streams listen with, one for each namespace, so
// that all streams of a namespace share one read of the log. A client keeps two
// connections, and up to four more while streams begin; therefore their number is
// limited.
type streamClients struct {
	client *posthorn.Client // the server's, for the streams of its own namespace
	max    int              // maxStreamClients, except in tests
	log    *slog.Logger

	mu      sync.Mutex
	clients map[string]*streamClient
	closed  bool // a client is closed at the end of its last stream
}

type streamClient struct {
	opened chan struct{} // closed when client or err is set
	client *posthorn.Client
	err    error

	users int         // streams; guarded by streamClients.mu, as idle is
	idle  *time.Timer // closes the client
}

func newStreamClients(client *posthorn.Client, log *slog.Logger) *streamClients {
	return &streamClients{client: client, max: maxStreamClients, log: log, clients: map[string]*streamClient{}}
}

// use returns the client of a namespace, which the caller has to release.
func (cs *streamClients) use(ctx context.Context, namespace string) (client *posthorn.Client, release func(), err error) {
	if namespace == cs.client.Namespace() {
		return cs.client, func() {}, nil
	}
	if err := admin.New(cs.client.Pool(), namespace).CheckNamespace(ctx); err != nil {
		return nil, nil, err
	}
	c, err := cs.join(namespace)
	if err != nil {
		return nil, nil, err
	}
	select {
	case <-c.opened:
		err = c.err
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		cs.leave(namespace, c)
		return nil, nil, err
	}
	return c.client, func() { cs.leave(namespace, c) }, nil
}

// join adds a user to the client of a namespace. If there is none, it begins to open
// one.
func (cs *streamClients) join(namespace string) (*streamClient, error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.clients[namespace]
	if c == nil {
		if len(cs.clients) >= cs.max && !cs.dropIdle() {
			return nil, unavailable("this server has readers in too many namespaces", "Try again later, or on another server.")
		}
		c = &streamClient{opened: make(chan struct{})}
		cs.clients[namespace] = c
		go cs.open(namespace, c)
	}
	if c.idle != nil {
		c.idle.Stop()
		c.idle = nil
	}
	c.users++
	return c, nil
}

// open opens a client. It does not end with the request that needed it first, because
// others may wait for the same client.
func (cs *streamClients) open(namespace string, c *streamClient) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c.client, c.err = posthorn.Open(ctx, posthorn.Config{Pool: cs.client.Pool(), Namespace: namespace, Logger: cs.log})
	close(c.opened)
}

// leave removes a user. After the last one, it closes the client when idleClientTime has
// passed; at once if the client could not be opened or the server stops.
func (cs *streamClients) leave(namespace string, c *streamClient) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c.users--
	if c.users > 0 {
		return
	}
	if cs.closed || c.failed() {
		cs.drop(namespace, c)
		return
	}
	c.idle = time.AfterFunc(idleClientTime, func() {
		cs.mu.Lock()
		defer cs.mu.Unlock()
		if c.users == 0 {
			cs.drop(namespace, c)
		}
	})
}

// failed tells whether the client could not be opened.
func (c *streamClient) failed() bool {
	select {
	case <-c.opened:
		return c.err != nil
	default:
		return false
	}
}

// drop closes a client without users. The caller holds the lock.
func (cs *streamClients) drop(namespace string, c *streamClient) {
	if c.idle != nil {
		c.idle.Stop()
	}
	if cs.clients[namespace] != c {
		return // dropped before
	}
	delete(cs.clients, namespace)
	go func() {
		<-c.opened
		if c.err == nil {
			c.client.Close()
		}
	}()
}

// dropIdle closes one client without users, if there is one. The caller holds the lock.
func (cs *streamClients) dropIdle() bool {
	for namespace, c := range cs.clients {
		if c.users == 0 {
			cs.drop(namespace, c)
			return true
		}
	}
	return false
}

// drain closes the clients without users, and the others at the end of their last
// stream.
func (cs *streamClients) drain() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.closed = true
	for cs.dropIdle() {
	}
}
