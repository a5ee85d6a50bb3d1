package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// The deadlines of Posthorn's own statements. After its deadline, the connection of a
// statement is closed, since the answer may still arrive. For statements that a lease
// depends on, see [LeaseTime].
const (
	statementTime = 30 * time.Second
	pollTime      = 5 * time.Second // for polling
)

// LeaseTime is the deadline of a statement that a lease of the given length depends on. It
// leaves time for a retry before the lease expires, unless the lease is very short.
func LeaseTime(leaseFor time.Duration) time.Duration {
	return min(max(leaseFor/3, 5*time.Second), statementTime)
}

type limitKey struct{}

// Within returns a context in which each statement on a [Pool] has the given deadline; 0
// means that it ends with ctx only. The deadline of ctx itself stays, and statements on
// other connections are not affected.
func Within(ctx context.Context, limit time.Duration) context.Context {
	return context.WithValue(ctx, limitKey{}, limit)
}

// limited returns the context of one statement.
func limited(ctx context.Context) (context.Context, context.CancelFunc) {
	limit, ok := ctx.Value(limitKey{}).(time.Duration)
	if !ok {
		limit = statementTime
	}
	if limit == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, limit)
}

type cancelKey struct{}

func start(ctx context.Context) context.Context {
	ctx, cancel := limited(ctx)
	return context.WithValue(ctx, cancelKey{}, cancel)
}

func end(ctx context.Context) {
	if cancel, ok := ctx.Value(cancelKey{}).(context.CancelFunc); ok {
		cancel()
	}
}

// deadlineTracer gives each statement its deadline. pgx does not call it for an exchange,
// which sets its own deadline.
type deadlineTracer struct{ statementTracer }

func (d deadlineTracer) TraceQueryStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	return start(d.statementTracer.TraceQueryStart(ctx, conn, data))
}

func (d deadlineTracer) TraceQueryEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceQueryEndData) {
	end(ctx)
	d.statementTracer.TraceQueryEnd(ctx, conn, data)
}

func (d deadlineTracer) TraceBatchStart(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchStartData) context.Context {
	return start(d.statementTracer.TraceBatchStart(ctx, conn, data))
}

func (d deadlineTracer) TraceBatchEnd(ctx context.Context, conn *pgx.Conn, data pgx.TraceBatchEndData) {
	end(ctx)
	d.statementTracer.TraceBatchEnd(ctx, conn, data)
}

func (deadlineTracer) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	return start(ctx)
}

func (deadlineTracer) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireEndData) {
	end(ctx)
}
