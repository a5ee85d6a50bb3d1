package page

import (
	"context"

	"github.com/posthorn/posthorn/op"
)

func (p *Pages) jobLimits() {
	p.screen(Screen{Path: "job-limits", Under: "jobs", Live: true, Show: listJobLimits})
	for _, o := range []op.Any{op.SetJobLimit, op.PauseJobTag, op.ResumeJobTag} {
		p.operation(o, func(r *Request) string { return r.Link("job-limits") })
	}
}

func listJobLimits(ctx context.Context, r *Request) (*View, error) {
	limits, err := r.Admin.JobLimits(ctx)
	return &View{Title: "Tags of jobs", Template: "job_limits.html", Data: limits}, err
}
