package worker

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/posthorn/posthorn/internal/pg"
)

// Transactions runs the transactions of handlers. They use at most half of the pool's
// connections: handlers that take another connection of the pool inside of their
// transactions would otherwise wait for each other.
type Transactions struct {
	pool  *pgxpool.Pool
	slots chan struct{}
	ended atomic.Int64 // number of ended transactions
	log   *slog.Logger
}

// LeastConns is the number of connections that a pool needs: one for a transaction of a handler, and
// one that the handler takes beside it.
const LeastConns = 2

// NewTransactions returns transactions on connections of a pool.
func NewTransactions(pool *pgxpool.Pool, log *slog.Logger) *Transactions {
	most := max(int(pool.Stat().MaxConns())/2, 1)
	return &Transactions{pool: pool, slots: make(chan struct{}, most), log: log}
}

// begin waits for a connection, and begins a transaction.
func (t *Transactions) begin(ctx context.Context, leaseFor time.Duration) (*pgxpool.Conn, pgx.Tx, error) {
	if err := t.Reserve(ctx); err != nil {
		return nil, nil, err
	}
	conn, tx, err := pg.Begin(ctx, t.pool, leaseFor)
	if err != nil {
		<-t.slots
	}
	return conn, tx, err
}

// Reserve waits until another transaction may use a connection of the pool. Its caller begins and ends
// the transaction itself, and then calls Free.
func (t *Transactions) Reserve(ctx context.Context) error {
	select {
	case t.slots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Free lets another transaction use the connection.
func (t *Transactions) Free() {
	t.ended.Add(1)
	<-t.slots
}

func (t *Transactions) release(conn *pgxpool.Conn) {
	conn.Release()
	t.Free()
}

// Watch checks every watchEvery, and warns after watchLooks checks without a change.
const (
	watchEvery = time.Second
	watchLooks = 3
)

// Watch warns, once each time, when all connections of the pool stay in use while
// no transaction of a handler ends: handlers may wait for connections that other
// handlers hold. It returns when ctx ends.
func (t *Transactions) Watch(ctx context.Context) {
	looks, ended := 0, t.ended.Load()
	for Pause(ctx, watchEvery) {
		now := t.ended.Load()
		if len(t.slots) == 0 || now != ended || t.pool.Stat().AcquiredConns() < t.pool.Stat().MaxConns() {
			looks, ended = 0, now
			continue
		}
		if looks++; looks == watchLooks {
			t.log.Warn("all connections of the pool are in use, and no handler's transaction ends: "+
				"handlers that take connections of the pool in their transactions may be waiting for each other; "+
				"raise MaxConns, or use the transaction that the handler is given",
				"connections", t.pool.Stat().MaxConns(), "transactions", len(t.slots))
		}
	}
}

// Do runs a function of a handler in a transaction of its own, then a statement of Posthorn, and
// commits. The transaction that the function gets cannot be ended there.
func (t *Transactions) Do(ctx context.Context, leaseFor time.Duration, run, last func(tx pgx.Tx) error) error {
	p := t.Pipeline(leaseFor)
	if err := p.Begin(ctx); err != nil {
		return err
	}
	defer p.End(ctx) // without effect after the commit
	if err := p.Run(run); err != nil {
		return err
	}
	if err := last(p.tx); err != nil {
		return err
	}
	return p.tx.Commit(ctx)
}

// Pipeline runs the transactions of one worker, one after another on one
// connection: one ends and the next begins in the same round trip. One goroutine
// uses it.
type Pipeline struct {
	from *Transactions
	conn *pgxpool.Conn // nil when there is no transaction
	tx   pgx.Tx
	keep time.Time // until when the connection is kept

	leaseFor time.Duration
}

// Pipeline returns a pipeline without a transaction, for leases of that length.
func (t *Transactions) Pipeline(leaseFor time.Duration) *Pipeline {
	return &Pipeline{from: t, leaseFor: leaseFor}
}

// PipelineFor is how long a pipeline keeps its connection. It is shorter than a lease,
// so that handlers of other groups do not wait for the end of one.
const PipelineFor = 20 * time.Millisecond

// Begin opens a transaction, unless Commit has opened one already.
func (p *Pipeline) Begin(ctx context.Context) error {
	if p.conn != nil {
		return nil
	}
	conn, tx, err := p.from.begin(ctx, p.leaseFor)
	if err != nil {
		return err
	}
	p.conn, p.tx, p.keep = conn, tx, time.Now().Add(PipelineFor)
	return nil
}

// Run runs a function in the transaction that is open. The transaction that the
// function gets cannot be ended there, and is closed when it has returned.
func (p *Pipeline) Run(run func(tx pgx.Tx) error) error {
	tx := &heldTx{Tx: p.tx}
	defer tx.over.Store(true)
	if err := run(tx); err != nil {
		return err
	}
	if p.conn.Conn().PgConn().IsBusy() {
		return errBusy
	}
	return nil
}

// Commit settles or completes, commits, and begins the next transaction if there is another
// and the connection may be kept. It returns the outcomes of the failures.
func (p *Pipeline) Commit(ctx context.Context, ending pg.Ending) ([]pg.Fate, error) {
	ending.Another = ending.Another && time.Now().Before(p.keep)
	fates, err := pg.Commit(ctx, p.conn.Conn(), ending)
	if errors.Is(err, pg.ErrUnconfirmed) {
		p.from.log.Warn("a transaction of a handler is committed, and a failover may lose it", "error", err)
	} else if err != nil {
		return nil, err
	}
	if !ending.Another || p.conn.Conn().PgConn().TxStatus() != 'T' {
		p.release()
	}
	return fates, nil
}

// End rolls back the transaction that is open.
func (p *Pipeline) End(ctx context.Context) {
	if p.conn == nil {
		return
	}
	ctx, cancel := Outlast(ctx, LastWords)
	defer cancel()
	_ = p.tx.Rollback(ctx) // where that fails, the connection is closed
	p.release()
}

func (p *Pipeline) release() {
	p.from.release(p.conn)
	p.conn, p.tx = nil, nil
}

var (
	errHeld      = errors.New("this transaction is committed or rolled back by whether the function returns an error")
	errSwallowed = errors.New("a statement failed in the transaction, and no error was returned")
	errBusy      = errors.New("the handler returned before it had read, or closed, the rows of a query")
)

// Blame returns the error of a commit as the handler's error if the handler ignored an
// error of a statement or violated a deferred constraint. Otherwise it returns it
// unchanged, as the database's error.
func Blame(err error) (handlerErr, _ error) {
	if pg.IsFailedTransaction(err) {
		return errSwallowed, nil
	}
	if e, ok := errors.AsType[*pg.CommitError](err); ok && e.Refused() {
		return err, nil
	}
	return nil, err
}

// HoldTx returns a transaction that a callback can use but not end, because statements
// of Posthorn follow in it.
func HoldTx(tx pgx.Tx) pgx.Tx { return &heldTx{Tx: tx} }

// heldTx is a transaction that a handler can use but not end. It is closed when the
// handler has returned, since the connection is then used for other events.
type heldTx struct {
	pgx.Tx
	over atomic.Bool
}

func (*heldTx) Commit(context.Context) error   { return errHeld }
func (*heldTx) Rollback(context.Context) error { return errHeld }

func (t *heldTx) Begin(ctx context.Context) (pgx.Tx, error) { return t.current().Begin(ctx) }

func (t *heldTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return t.current().Exec(ctx, sql, args...)
}

func (t *heldTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return t.current().Query(ctx, sql, args...)
}

func (t *heldTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return t.current().QueryRow(ctx, sql, args...)
}

func (t *heldTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return t.current().SendBatch(ctx, b)
}

func (t *heldTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	return t.current().CopyFrom(ctx, table, columns, rows)
}

func (t *heldTx) current() pgx.Tx {
	if t.over.Load() {
		return closedTx
	}
	return t.Tx
}

// closedTx answers everything with [pgx.ErrTxClosed].
var closedTx = func() pgx.Tx {
	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{})
	return pgx.FailedBatchResults(b, pgx.ErrTxClosed).Tx()
}()
