package metrics

import "github.com/posthorn/posthorn/admin"

// mostJobs bounds the number of jobs that are counted in each state.
const mostJobs = 10_000

// ofJobs returns the numbers of jobs by state.
func ofJobs(counts []admin.JobCount) Family {
	f := Family{Metric: Metric{
		Name: "posthorn_jobs", Help: "Jobs by state, counted up to 10,000: ready, later, held back by their tags, blocked by other jobs, awaiting an event, running, stalled, failed, cancelled.",
		Kind: Gauge, Labels: []string{"state"},
	}}
	for _, c := range counts {
		f.Add(Sample{Value: float64(c.Jobs)}, c.State)
	}
	return f
}
