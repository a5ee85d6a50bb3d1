package pg

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// statementTracer tells the monitor about connections and their statements. It marks the contexts
// in which connections are opened: pgx dials without the mark to cancel a statement whose context
// has ended.
type statementTracer struct{}

type connecting struct{}

func (statementTracer) TraceConnectStart(ctx context.Context, _ pgx.TraceConnectStartData) context.Context {
	return context.WithValue(ctx, connecting{}, true)
}

func (statementTracer) TraceConnectEnd(_ context.Context, data pgx.TraceConnectEndData) {
	if data.Err != nil {
		return
	}
	if c := watchedOf(data.Conn); c != nil {
		c.backend.Store(data.Conn.PgConn().PID())
	}
}

func (statementTracer) TraceQueryStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	noteStatements(conn, 1)
	return ctx
}

func (statementTracer) TraceQueryEnd(_ context.Context, conn *pgx.Conn, _ pgx.TraceQueryEndData) {
	noteStatements(conn, -1)
}

func (statementTracer) TraceBatchStart(ctx context.Context, conn *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	noteStatements(conn, 1)
	return ctx
}

func (statementTracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (statementTracer) TraceBatchEnd(_ context.Context, conn *pgx.Conn, _ pgx.TraceBatchEndData) {
	noteStatements(conn, -1)
}

func (statementTracer) TracePrepareStart(ctx context.Context, conn *pgx.Conn, _ pgx.TracePrepareStartData) context.Context {
	noteStatements(conn, 1)
	return ctx
}

func (statementTracer) TracePrepareEnd(_ context.Context, conn *pgx.Conn, _ pgx.TracePrepareEndData) {
	noteStatements(conn, -1)
}
