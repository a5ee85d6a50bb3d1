package metrics

import "github.com/posthorn/posthorn/admin"

// mostJobs bounds the number of jobs that are counted in each state.
const mostJobs = 10_000

// ofJobs returns the numbers of jobs by state.
func ofJobs(counts []admin.JobCount) Family {
	f := Family{Metric: Metric{
		Name: "posthorn_jobs", Help: "Jobs by the state that says why a job does not run, counted up to 10,000; stalled ones are running, too.",
		Kind: Gauge, Labels: []string{"state"},
	}}
	for _, c := range counts {
		f.Add(Sample{Value: float64(c.Jobs)}, c.State)
	}
	return f
}
