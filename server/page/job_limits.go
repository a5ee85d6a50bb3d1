package page

import (
	"context"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func (p *Pages) jobLimits() {
	p.screen(Screen{Path: "job-limits", Under: "jobs", Live: true, Show: p.listJobLimits})
	for _, o := range []op.Any{op.SetJobLimit, op.PauseJobTag, op.ResumeJobTag} {
		p.operation(o, func(r *Request) string { return r.Link("job-limits") })
	}
}

// mostTags bounds the tags with due jobs that are shown.
const mostTags = 20

// limitsPage has the tags with limits, and small lines of those of them that had the most jobs in the last hour.
type limitsPage struct {
	sortedList[admin.JobLimitStatus]
	Lines map[string]any
	Now   []admin.JobTag // those with the most due jobs
}

func (p *Pages) listJobLimits(ctx context.Context, r *Request) (*View, error) {
	all, err := r.Admin.JobLimits(ctx)
	if err != nil {
		return nil, err
	}
	list, err := sorted(r, all, func(l admin.JobLimitStatus) string { return l.Tag }, map[string]func(admin.JobLimitStatus) float64{
		"running": func(l admin.JobLimitStatus) float64 { return float64(l.Running) },
		"started": func(l admin.JobLimitStatus) float64 { return float64(l.Started) },
		"held":    func(l admin.JobLimitStatus) float64 { return float64(l.HeldBack) },
	})
	if err != nil {
		return nil, err
	}
	now, err := r.Admin.JobTags(ctx, nil, mostTags)
	if err != nil {
		return nil, err
	}
	page := limitsPage{list, map[string]any{}, now}
	busiest, err := p.busiestTags(ctx, r, spans[0])
	for _, t := range busiest {
		page.Lines[t.Tag] = t.Spark
	}
	return &View{Title: "Tags of jobs", Template: "job_limits.html", Data: page}, err
}
