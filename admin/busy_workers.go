package admin

import (
	"context"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// BusyWorker is a job that a worker runs, or a lease that a worker has.
type BusyWorker struct {
	Worker  string    `json:"worker_id"`
	Kind    string    `json:"kind"` // job or lease
	ID      int64     `json:"id"`   // of the job or the lease
	Name    string    `json:"name"` // the title of the job, or the group of the lease
	Tags    []string  `json:"tags,omitempty"`
	Attempt int       `json:"attempt"`
	Since   time.Time `json:"since"`   // when the worker took it
	Seconds float64   `json:"seconds"` // that have passed since then
	Until   time.Time `json:"until"`   // when others may take it, unless its worker sends a sign before
	Stalled bool      `json:"stalled"` // the worker of the job has sent no heartbeat for 30 seconds, or the lease is past its deadline
	Slow    bool      `json:"slow"`    // the job has run for more than a minute, and ten times as long as 95 of 100 jobs with its tag
	Why     string    `json:"why,omitempty"`
}

// BusyWorkers returns the jobs and leases that workers have, up to most of them: those that have lasted longest, and together those
// of one worker.
func (a *Admin) BusyWorkers(ctx context.Context, most int) ([]BusyWorker, error) {
	return a.BusyWorkersInTrouble(ctx, "", most)
}

// BusyWorkersInTrouble is [Admin.BusyWorkers] for the jobs and leases that are stalled, or the jobs that are slow.
func (a *Admin) BusyWorkersInTrouble(ctx context.Context, trouble string, most int) ([]BusyWorker, error) {
	return rows[BusyWorker](ctx, a.db, "list busy workers", "select * from posthorn.busy_work($1::text, $2::int, $3::text[], $4::text)",
		a.namespace, most, list(a.hidden), pg.Optional(trouble))
}
