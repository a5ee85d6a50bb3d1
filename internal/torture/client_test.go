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

// client is a connection that breaks now and then, with a source of random
// decisions.
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
		conn, err := c.connect(ctx)
		if err != nil {
			pause(ctx, 20*time.Millisecond)
			continue
		}
		c.conn = conn
	}
	return ctx.Err() == nil
}

// connect notices, as Posthorn's own connections do, when the database is silent.
func (c *client) connect(ctx context.Context) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(c.database.clients)
	if err != nil {
		return nil, err
	}
	return pg.Connect(ctx, config, slog.New(slog.DiscardHandler))
}

// forget drops the connection, as a process that dies does.
func (c *client) forget() {
	if c.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = c.conn.Close(ctx) // it may be broken already
	c.conn = nil
}

// broken tells whether an error is that of a connection that broke. Any other
// error ends the run.
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

func hasCode(err error, code string) bool {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pgErr.Code == code
}
