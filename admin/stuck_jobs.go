package admin

import (
	"context"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// StuckJob is a job that does not go on by itself. It stands for all that are stuck for the same reason.
type StuckJob struct {
	Trouble string    `json:"trouble"` // stalled, slow, lost, not taken, held back or blocks others
	ID      int64     `json:"id"`
	Title   string    `json:"title"`
	Tags    []string  `json:"tags"`
	State   string    `json:"state"` // see [JobStatus]
	Why     string    `json:"why"`   // goes on from Trouble: on w-1, or by the pause of mail
	Helps   string    `json:"helps"` // the remedy, such as: restart w-1, or retry its jobs
	Since   time.Time `json:"since"`
	Seconds float64   `json:"seconds"` // that have passed since then
	Worker  string    `json:"worker_id,omitempty"`
	Others  int64     `json:"others,omitempty"` // of the same worker or tag that are stuck too, or that wait behind the job: up to 100
	Tag     string    `json:"tag,omitempty"`    // that these jobs share, if it is not taken or held back
}

// StuckJobs returns the jobs that are stuck, those first that have been so longest: up to most of them. A trouble selects those
// that have it, and "" all.
func (a *Admin) StuckJobs(ctx context.Context, trouble string, most int) ([]StuckJob, error) {
	return rows[StuckJob](ctx, a.db, "list stuck jobs", "select * from posthorn.list_stuck_jobs($1::text, $2::text, $3::int)", a.namespace, pg.Optional(trouble), most)
}

// StuckWith returns the jobs for which a stuck job stands, with itself unless they are behind it. It knows those that are lost, those
// without tags that are not taken, and those behind one that blocks others: up to most of them.
func (a *Admin) StuckWith(ctx context.Context, trouble string, id int64, most int) ([]JobStatus, error) {
	return rows[JobStatus](ctx, a.db, "list stuck jobs", `
		select j.* from posthorn.get_jobs($1::text, array(select s.job from posthorn.stuck_with($1::text, $2::text, $3::bigint, $4::int) s)) j`, a.namespace, trouble, id, most)
}
