package torture

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/posthorn/posthorn/internal/pg"
)

// client is a connection that may break, with a source of random decisions.
type client struct {
	*run
	rng  *rand.Rand
	conn *pgx.Conn
}

func (r *run) newClient() *client { return &client{run: r, rng: r.random()} }

// connected connects if necessary, and retries while the server is down. It returns
// false when ctx has ended.
func (c *client) connected(ctx context.Context) bool {
	for c.conn == nil || c.conn.IsClosed() {
		if ctx.Err() != nil {
			return false
		}
		c.forget()
		conn, err := c.connect(ctx)
		if err != nil {
			pause(ctx, 20*time.Millisecond)
			continue
		}
		c.conn = conn
	}
	return ctx.Err() == nil
}

// connect uses Posthorn's timeouts, so it fails if the database does not answer.
func (c *client) connect(ctx context.Context) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(c.address())
	if err != nil {
		return nil, err
	}
	return pg.Connect(ctx, config, slog.New(slog.DiscardHandler))
}

// address is a URL of the database: one of several if clients may try its servers in any order.
func (c *client) address() string {
	if orders := c.database.orders; len(orders) > 0 {
		return orders[c.rng.IntN(len(orders))]
	}
	return c.database.clients
}

// forget closes the connection in any state, as the death of a process does.
func (c *client) forget() {
	if c.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.conn.Close(ctx) // the connection may be broken
	c.conn = nil
}

// unconfirmed is the error of a commit whose wait for a standby was cancelled.
const unconfirmed = "PH007"

// broken reports whether an error means that the connection broke, or that a failover may undo what
// was done. Any other error ends the run.
func (c *client) broken(ctx context.Context, err error) bool {
	switch {
	case err == nil:
		return false
	case c.conn.IsClosed() || ctx.Err() != nil:
		c.record.count("broken connections")
		return true
	case hasCode(err, unconfirmed):
		return true
	}
	c.fail(err)
	return false
}

// chance returns true with probability 1/n.
func (c *client) chance(n int) bool { return c.rng.IntN(n) == 0 }

func hasCode(err error, code string) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == code
}
