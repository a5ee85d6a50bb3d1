package page

import (
	"context"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func (p *Pages) stuck() {
	p.screen(Screen{Path: "stuck", Under: "jobs", Live: true, Show: showStuck})
}

// mostStuck bounds the stuck jobs that are shown.
const mostStuck = 100

// stuckPage has the jobs that are stuck.
type stuckPage struct {
	Trouble  string // empty for all
	Troubles []string
	Jobs     []admin.StuckJob
	More     bool // jobs that have been stuck for a shorter time
}

func showStuck(ctx context.Context, r *Request) (*View, error) {
	trouble := r.Value("trouble")
	jobs, err := r.Admin.StuckJobs(ctx, trouble, mostStuck+1)
	return &View{Title: "Stuck jobs", Data: stuckPage{trouble, choicesOf(&op.ListStuckJobsInput{}, "trouble"), jobs[:min(len(jobs), mostStuck)], len(jobs) > mostStuck}}, err
}
