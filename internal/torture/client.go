package torture

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// client is a connection that breaks now and then, and what its user decides
// by chance.
type client struct {
	*run
	rng  *rand.Rand
	conn *pgx.Conn
}

func (r *run) newClient() *client { return &client{run: r, rng: r.random()} }

// connected makes sure of a connection; it is false when ctx has ended. It
// tries again for as long as the server is down.
func (c *client) connected(ctx context.Context) bool {
	for c.conn == nil || c.conn.IsClosed() {
		if ctx.Err() != nil {
			return false
		}
		c.forget()
		conn, err := pgx.Connect(ctx, c.URL)
		if err != nil {
			pause(ctx, 20*time.Millisecond)
			continue
		}
		c.conn = conn
		c.backends.add(conn.PgConn().PID())
	}
	return ctx.Err() == nil
}

// forget drops the connection, as a process that dies does.
func (c *client) forget() {
	if c.conn == nil {
		return
	}
	c.backends.remove(c.conn.PgConn().PID())
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.conn.Close(ctx) // it may be broken already
	c.conn = nil
}

// broken tells whether an error is that of a connection that broke. Whatever
// else goes wrong and is not expected by the caller ends the run.
func (c *client) broken(ctx context.Context, err error) bool {
	switch {
	case err == nil:
		return false
	case c.conn.IsClosed() || ctx.Err() != nil:
		c.record.count("broken connections")
		return true
	}
	c.fail(err)
	return false
}

// chance is true once in n times.
func (c *client) chance(n int) bool { return c.rng.IntN(n) == 0 }

// upTo is a random duration.
func (c *client) upTo(d time.Duration) time.Duration { return time.Duration(c.rng.Int64N(int64(d))) }

func hasCode(err error, code string) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == code
}

// backends are those of the clients, for whoever terminates some.
type backends struct {
	mu   sync.Mutex
	pids []uint32
}

func (b *backends) add(pid uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.pids = append(b.pids, pid)
}

func (b *backends) remove(pid uint32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, p := range b.pids {
		if p == pid {
			b.pids[i] = b.pids[len(b.pids)-1]
			b.pids = b.pids[:len(b.pids)-1]
			return
		}
	}
}

func (b *backends) any(rng *rand.Rand) uint32 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.pids) == 0 {
		return 0
	}
	return b.pids[rng.IntN(len(b.pids))]
}
