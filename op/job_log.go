package op

import (
	"fmt"
	"slices"
	"time"

	"github.com/posthorn/posthorn/admin"
)

// attemptEnds are the actions in the log of a job that end an attempt.
var attemptEnds = []string{"COMPLETED", "FAILED", "SNOOZED", "EXPIRED", "RESET", "CANCELLED"}

// AttemptTimes returns for each entry of the log of a job how long the attempt took that has ended with it: as its worker
// measured it, or since the worker took the job. It is 0 for other entries.
func AttemptTimes(log []admin.JobEntry) []time.Duration {
	times := make([]time.Duration, len(log))
	var picked time.Time
	for i, e := range log {
		switch {
		case e.Action == "PICKED":
			picked = e.CreatedAt
		case !slices.Contains(attemptEnds, e.Action):
		case e.ExecutionTimeMS != nil && *e.ExecutionTimeMS > 0:
			times[i] = time.Duration(*e.ExecutionTimeMS) * time.Millisecond
		case !picked.IsZero():
			times[i] = e.CreatedAt.Sub(picked)
		}
		if slices.Contains(attemptEnds, e.Action) {
			picked = time.Time{}
		}
	}
	return times
}

// JobFailures says how many attempts of a job have failed, and how many of them count for its retries. Retries are counted
// anew when the job sleeps, waits for an event or is started again: it has gone on since.
func JobFailures(j admin.JobStatus, log []admin.JobEntry, isCut bool) string {
	const anew = "since it last slept, waited for an event or was started again, from when on retries are counted"
	failed := 0
	for _, e := range log {
		if e.Action == "FAILED" && e.Attempt > 0 {
			failed++
		}
	}
	switch {
	case isCut:
		return fmt.Sprintf("%d %s", j.RetryCount, anew)
	case failed > j.RetryCount:
		return fmt.Sprintf("%d, of which %d %s", failed, j.RetryCount, anew)
	}
	return fmt.Sprint(j.RetryCount)
}

// FailedForever tells whether the worker of a job has said that a retry cannot help, although the job had retries left.
func FailedForever(j admin.JobStatus, log []admin.JobEntry) bool {
	if len(log) == 0 || j.Status != admin.JobFailed || j.RetryCount >= j.MaxRetries {
		return false
	}
	last := log[len(log)-1]
	fellSilent := slices.ContainsFunc(log, func(e admin.JobEntry) bool { return e.Action == "EXPIRED" && e.Attempt == last.Attempt })
	return last.Action == "FAILED" && last.Worker != "" && !fellSilent
}
