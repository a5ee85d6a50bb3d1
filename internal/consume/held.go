package consume

import (
	"context"
	"errors"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// heldTx is a transaction that a handler may use but not end: its settlement is
// part of it. When the handler has returned it is over, since the connection goes
// on with the transactions of other events.
type heldTx struct {
	pgx.Tx
	over atomic.Bool
}

var errHeld = errors.New("a handler's transaction is committed or rolled back by whether the handler returns an error")

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
