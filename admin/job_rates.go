package admin

import (
	"context"
	"time"
)

// JobRate counts the jobs that were enqueued and ended in an interval, and has the seconds within which half of them and 95
// of 100 were taken by a worker, and done. The times are right within a tenth, and nil if there are none.
type JobRate struct {
	At        time.Time `json:"at"`       // where the interval begins
	Seconds   float64   `json:"seconds"`  // its length
	Enqueued  float64   `json:"enqueued"` // whole numbers, but where a sample is part of two intervals
	Completed float64   `json:"completed"`
	Failed    float64   `json:"failed"` // for good
	WaitedP50 *float64  `json:"waited_p50,omitempty"`
	WaitedP95 *float64  `json:"waited_p95,omitempty"`
	RanP50    *float64  `json:"ran_p50,omitempty"`
	RanP95    *float64  `json:"ran_p95,omitempty"`
}

// JobRates returns the rates of the jobs of the namespace until the last sample, as [Admin.Rates] does. With a tag, they
// are those of the jobs that have it: in intervals in which it was one of the twenty tags with the most jobs.
func (a *Admin) JobRates(ctx context.Context, tag string, period time.Duration, intervals int) ([]JobRate, error) {
	return rows[JobRate](ctx, a.db, "list rates of jobs", "select * from posthorn.job_rates($1::text, $2::interval, $3::int, $4::text)", a.namespace, period, intervals, tag)
}

// BusyTag is a tag with its jobs in a period.
type BusyTag struct {
	Tag       string    `json:"tag"`
	Enqueued  float64   `json:"enqueued"`
	Completed float64   `json:"completed"`
	Failed    float64   `json:"failed"` // for good
	WaitedP95 *float64  `json:"waited_p95,omitempty"`
	RanP95    *float64  `json:"ran_p95,omitempty"`
	Line      []float64 `json:"line"` // completed jobs in each interval, oldest first
}

// BusiestTags returns the twenty tags with the most jobs in a period, first the one that had most.
func (a *Admin) BusiestTags(ctx context.Context, period time.Duration, intervals int) ([]BusyTag, error) {
	return rows[BusyTag](ctx, a.db, "list busiest tags", "select * from posthorn.busiest_tags($1::text, $2::interval, $3::int)", a.namespace, period, intervals)
}
