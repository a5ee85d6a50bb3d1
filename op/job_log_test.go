package op

import (
	"slices"
	"testing"
	"time"

	"github.com/posthorn/posthorn/admin"
)

// The failures before a sleep are told although they count no more, and an attempt without a measured time has one.
func TestLogOfAJob(t *testing.T) {
	t.Parallel()
	noon, measured := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), int64(9811)
	after := func(milliseconds int) time.Time { return noon.Add(time.Duration(milliseconds) * time.Millisecond) }
	log := []admin.JobEntry{
		{Action: "PICKED", Attempt: 1, Worker: "w", CreatedAt: noon},
		{Action: "FAILED", Attempt: 1, Worker: "w", ExecutionTimeMS: &measured, RetryCount: 1, CreatedAt: after(9900)},
		{Action: "PICKED", Attempt: 2, Worker: "w", CreatedAt: after(20000)},
		{Action: "SNOOZED", Attempt: 2, Worker: "w", RetryCount: 1, CreatedAt: after(20516)},
		{Action: "CHANGED", CreatedAt: after(30000)},
		{Action: "RESET", CreatedAt: after(30000)},
	}
	millisecond := time.Millisecond
	if got, want := AttemptTimes(log), []time.Duration{0, 9811 * millisecond, 0, 516 * millisecond, 0, 0}; !slices.Equal(got, want) {
		t.Errorf("the attempts took %v, not %v", got, want)
	}
	for failures, want := range map[int]string{
		0: "1, of which 0 since it last slept, waited for an event or was started again, from when on retries are counted", 1: "1",
	} {
		if got := JobFailures(admin.JobStatus{RetryCount: failures}, log, false); got != want {
			t.Errorf("failures are %q, not %q", got, want)
		}
	}
	failed := admin.JobStatus{Status: admin.JobFailed, RetryCount: 1, MaxRetries: 3}
	if !FailedForever(failed, log[:2]) {
		t.Error("a job that failed with retries left is not told from others")
	}
	silent := []admin.JobEntry{log[0], {Action: "EXPIRED", Attempt: 1, Worker: "w"}, log[1]}
	if failed.MaxRetries = 1; FailedForever(failed, log[:2]) || FailedForever(admin.JobStatus{Status: admin.JobFailed, MaxRetries: 3}, silent) {
		t.Error("a job without retries, or whose worker fell silent, is said to have failed with such an error")
	}
}
