package page

import (
	"context"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func (p *Pages) jobLimits() {
	p.screen(Screen{Path: "job-limits", Under: "jobs", Live: true, Show: listJobLimits})
	for _, o := range []op.Any{op.SetJobLimit, op.PauseJobTag, op.ResumeJobTag} {
		p.operation(o, func(r *Request) string { return r.Link("job-limits") })
	}
}

func listJobLimits(ctx context.Context, r *Request) (*View, error) {
	all, err := r.Admin.JobLimits(ctx)
	if err != nil {
		return nil, err
	}
	list, err := sorted(r, all, func(l admin.JobLimitStatus) string { return l.Tag }, map[string]func(admin.JobLimitStatus) float64{
		"running": func(l admin.JobLimitStatus) float64 { return float64(l.Running) },
		"started": func(l admin.JobLimitStatus) float64 { return float64(l.Started) },
		"held":    func(l admin.JobLimitStatus) float64 { return float64(l.HeldBack) },
	})
	return &View{Title: "Tags of jobs", Template: "job_limits.html", Data: list}, err
}
