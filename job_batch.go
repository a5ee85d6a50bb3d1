package posthorn

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/posthorn/posthorn/internal/work"
)

// WorkBatch registers a handler that gets many jobs in one call; see [Client.Work] for which.
// A batch is the jobs that are due when it is taken, at most [WorkConfig].BatchSize: it
// does not wait for more.
//
// The handler returns nil when all jobs are complete. With [JobErrors] those jobs have failed,
// each as if a handler had returned its error, and all others are complete. After any other
// error, and after a panic, the handler is called for each job alone, so that a job fails by
// its own error only.
//
// The context ends after [WorkConfig].Timeout, when the client stops, and when all jobs were
// cancelled, reset or taken by other workers. [Job.SetResult], [Job.Progress] and [Job.Sleep]
// work. A job that sleeps is not completed; its error belongs into JobErrors. [Job.Complete]
// and steps are refused, since a job may be handled twice in one attempt: use Work for such
// jobs, or [Client.WorkBatchTx]. The log has no entry for the start of an attempt.
func (c *Client) WorkBatch(tags []string, config WorkConfig, handler func(ctx context.Context, jobs []Job) error) {
	w := &jobWorker{batches: true}
	if handler != nil {
		w.handle = func(ctx context.Context, _ pgx.Tx, jobs []*work.Job) error { return handler(ctx, c.jobs(jobs)) }
	}
	c.work(tags, config, w)
}

// WorkBatchTx is [Client.WorkBatch] with a transaction, in which the jobs are also completed:
// both commit together, so the effect of the transaction happens exactly once. The handler
// must not end the transaction.
//
// Any error rolls back the whole batch, [JobErrors] included. So does the loss of a job that
// was cancelled, reset or taken by another worker meanwhile; the context ends then too. The
// handler is called again for each of the other jobs alone, in a transaction of its own. After
// a deadlock or a serialization failure, the same call is repeated first.
//
// A batch needs a connection, see [Config].MaxConns. [Job.Progress] is recorded at once, and
// stays after a rollback. [Job.Sleep] is refused as well, since it would end the attempt apart
// from the transaction.
func (c *Client) WorkBatchTx(tags []string, config WorkConfig, handler func(ctx context.Context, tx pgx.Tx, jobs []Job) error) {
	w := &jobWorker{batches: true, transactions: c.transactions}
	if handler != nil {
		w.handle = func(ctx context.Context, tx pgx.Tx, jobs []*work.Job) error { return handler(ctx, tx, c.jobs(jobs)) }
	}
	c.work(tags, config, w)
}

func (c *Client) jobs(held []*work.Job) []Job {
	jobs := make([]Job, len(held))
	for i, j := range held {
		jobs[i] = c.job(j)
	}
	return jobs
}
