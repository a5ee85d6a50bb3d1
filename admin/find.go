package admin

import "context"

// FindJobTags returns the tags of jobs with a text in their name, of which only letters and digits count: "tenant 7" finds
// tenant:7. They have jobs that are due or run, or limits, or had many jobs in the last hour.
func (a *Admin) FindJobTags(ctx context.Context, part string, most int) ([]string, error) {
	return a.names(ctx, "find tags of jobs", "select posthorn.find_job_tags($1::text, $2::text, $3::int)", part, most)
}

// FoundWorker is a worker that has jobs or leases, or a node.
type FoundWorker struct {
	ID          string `db:"worker_id"`
	DisplayName string `db:"display_name"`
	Jobs        int64  `db:"jobs"` // that it has
	Leases      int64  `db:"leases"`
}

// FindWorkers returns the workers with a text in their id or name, those with most work first.
func (a *Admin) FindWorkers(ctx context.Context, part string, most int) ([]FoundWorker, error) {
	return rows[FoundWorker](ctx, a.db, "find workers", "select * from posthorn.find_workers($1::text, $2::text, $3::int, $4::text[])", a.namespace, part, most, list(a.hidden))
}
