package pg

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// How long our own statements may take, each by its kind. When that is over, the
// connection is closed: its answer may still come. Where a lease depends on a
// statement, see [LeaseTime].
const (
	statementTime = 30 * time.Second
	lookTime      = 5 * time.Second  // for news
	longTime      = 10 * time.Minute // for what may change much at once
)

// LeaseTime is how long a statement may take that a lease of that length depends
// on: it can be tried again while the lease lasts, if the lease is not very short.
func LeaseTime(leaseFor time.Duration) time.Duration {
	return min(max(leaseFor/3, 5*time.Second), statementTime)
}

type limitKey struct{}

// Within returns a context in which each statement on a [Pool] may take that
// long, instead of what its kind may; 0 is for as long as ctx lasts. ctx itself
// does not end sooner, and other connections take no notice.
func Within(ctx context.Context, limit time.Duration) context.Context {
	return context.WithValue(ctx, limitKey{}, limit)
}

// limited is ctx for one statement.
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

// deadlineTracer gives each statement its deadline, whichever way it is sent. The
// pipelines of [Pool.Take] pass it by, and have deadlines of their own.
type deadlineTracer struct{ connectTracer }

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

func (deadlineTracer) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return start(ctx)
}

func (deadlineTracer) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	end(ctx)
}

func (deadlineTracer) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return start(ctx)
}

func (deadlineTracer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}

func (deadlineTracer) TraceBatchEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchEndData) {
	end(ctx)
}

func (deadlineTracer) TraceAcquireStart(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireStartData) context.Context {
	return start(ctx)
}

func (deadlineTracer) TraceAcquireEnd(ctx context.Context, _ *pgxpool.Pool, _ pgxpool.TraceAcquireEndData) {
	end(ctx)
}
