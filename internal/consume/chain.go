package consume

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/internal/pg"
)

// chain is the transactions of a lane, one after another on one connection: one
// ends and the next begins in the same round trip.
type chain struct {
	pool *pgxpool.Pool
	conn *pgxpool.Conn // nil when there is no transaction
	tx   pgx.Tx
	let  time.Time // when others get a chance to have the connection
}

// chainFor is how long a connection is kept from event to event. The program may
// use the pool too, and does not wait for the end of a lease.
const chainFor = 20 * time.Millisecond

// begin sees to it that a transaction is open, in which nothing has happened.
func (c *chain) begin(ctx context.Context) error {
	if c.conn != nil {
		return nil
	}
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	tx, err := conn.Begin(ctx)
	if err != nil {
		conn.Release()
		return err
	}
	c.conn, c.tx, c.let = conn, tx, time.Now().Add(chainFor)
	return nil
}

// commit settles and commits, and begins the next transaction if there is
// another and it is not somebody else's turn.
func (c *chain) commit(ctx context.Context, ending pg.Ending) error {
	ending.Another = ending.Another && time.Now().Before(c.let)
	if err := pg.Commit(ctx, c.conn.Conn(), ending); err != nil {
		return err
	}
	if !ending.Another || c.conn.Conn().PgConn().TxStatus() != 'T' {
		c.release()
	}
	return nil
}

// end rolls back what is open.
func (c *chain) end(ctx context.Context) {
	if c.conn == nil {
		return
	}
	ctx, cancel := Outlast(ctx, lastWords)
	defer cancel()
	_ = c.tx.Rollback(ctx) // where that fails, the connection is closed
	c.release()
}

func (c *chain) release() {
	c.conn.Release()
	c.conn, c.tx = nil, nil
}
