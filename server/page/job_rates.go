package page

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/posthorn/posthorn/admin"
)

func (p *Pages) jobRates() {
	p.screen(Screen{Path: "job-rates", Under: "jobs", Live: true, Show: p.showJobRates})
}

// busyTag is a tag as a row of a table.
type busyTag struct {
	admin.BusyTag
	Spark any          // its completed jobs, as a small line
	Now   admin.JobTag // its jobs that wait and run
}

// jobRatesPage has the charts of the jobs of a namespace, or of one tag.
type jobRatesPage struct {
	Tag            string
	Numbers, Times []chart
	Tags           []busyTag
}

func (p *Pages) showJobRates(ctx context.Context, r *Request) (*View, error) {
	s, err := r.span()
	if err != nil {
		return nil, err
	}
	page := jobRatesPage{Tag: r.Value("tag")}
	rates, err := p.jobRatesOf(ctx, r, page.Tag, s)
	if err != nil {
		return nil, err
	}
	page.Numbers, page.Times = jobCharts(s, rates)
	if page.Tags, err = p.busiestTags(ctx, r, s); err != nil {
		return nil, err
	}
	err = addNow(ctx, r, page.Tags)
	return &View{Title: "Charts of jobs", Template: "job_rates.html", Data: page}, err
}

// jobRatesOf returns the rates of the jobs of a namespace in a period, or of those with a tag.
func (p *Pages) jobRatesOf(ctx context.Context, r *Request, tag string, s span) ([]admin.JobRate, error) {
	return p.jobSamples.Since(ctx, fmt.Sprintf("%q", []any{r.Namespace, tag, s.Name}), r.since, func(ctx context.Context) ([]admin.JobRate, time.Time, error) {
		began := time.Now()
		rates, err := r.Admin.JobRates(ctx, tag, s.period, s.intervals)
		return rates, keep(began, overviewKept), err
	})
}

// busiestTags returns the tags with the most jobs in a period, with their lines.
func (p *Pages) busiestTags(ctx context.Context, r *Request, s span) (tags []busyTag, err error) {
	all, err := p.tags.Since(ctx, fmt.Sprintf("%q", []any{r.Namespace, s.Name}), r.since, func(ctx context.Context) ([]admin.BusyTag, time.Time, error) {
		began := time.Now()
		tags, err := r.Admin.BusiestTags(ctx, s.period, s.intervals)
		return tags, keep(began, overviewKept), err
	})
	for _, t := range all {
		label := fmt.Sprintf("%s completed in the last %s", things(t.Completed, "job"), s.Name)
		tags = append(tags, busyTag{BusyTag: t, Spark: spark(t.Line, label)})
	}
	return tags, err
}

// addNow adds to each tag its jobs that wait and run.
func addNow(ctx context.Context, r *Request, tags []busyTag) error {
	names := make([]string, len(tags))
	for i, t := range tags {
		names[i] = t.Tag
	}
	if len(names) == 0 {
		return nil
	}
	now, err := r.Admin.JobTags(ctx, names, len(names))
	for i, t := range tags {
		if n := slices.IndexFunc(now, func(n admin.JobTag) bool { return n.Tag == t.Tag }); n >= 0 {
			tags[i].Now = now[n]
		}
	}
	return err
}
