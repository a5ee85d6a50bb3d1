package op

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/posthorn/posthorn/admin"
)

var jobs = Topic{"jobs", "job", "7"}

// jobRoute says why the routes of single jobs are by hand.
const jobRoute = "its JSON was specified before the others, and it has a compatible spelling under /events"

// ListJobsInput is a filter, and a page of the jobs that it selects.
type ListJobsInput struct {
	Namespace
	admin.JobFilter
}

var ListJobs = Op[ListJobsInput, []admin.JobStatus]{
	About: About{
		Topic: jobs, Verb: "list", Scope: Read, SQL: "list_jobs", Path: "/v1/jobs",
		Does:    "List jobs",
		More:    "Jobs that match every filter. Over HTTP the oldest are first; limit and offset select a page, and total is the number of jobs on all pages; with a state that says why a job waits, up to 10,000 jobs are looked at for it.",
		Example: "posthorn jobs list --status failed --tag mail\nposthorn jobs list --state 'held back by a limit'\nposthorn jobs list --payload o-17\nposthorn jobs list --stalled --watch\nposthorn jobs stuck",
		ByHand:  map[Face]string{HTTP: jobRoute, Command: "--watch lists them again and again, and the newest are first", Page: "it goes back from the newest by number"},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *ListJobsInput) ([]admin.JobStatus, error) {
		return a.Jobs(ctx, in.JobFilter)
	},
}

var GetJob = Op[ByID, admin.JobStatus]{
	About: About{
		Topic: jobs, Verb: "get", Scope: Read, SQL: "get_job", Path: "/v1/jobs/{id}",
		Does:   "Show a job, with its payload",
		More:   "Over HTTP, include_logs adds the newest 10,000 entries of the log of the job, in order.",
		ByHand: map[Face]string{HTTP: jobRoute, Command: "it shows the log too", Page: "it shows the log too"},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *ByID) (admin.JobStatus, error) { return a.Job(ctx, in.ID) },
}

// mostStuck is how many stuck jobs are listed.
const mostStuck = 1000

// ListStuckJobsInput says which stuck jobs are listed.
type ListStuckJobsInput struct {
	Namespace
	Trouble string `query:"trouble" flag:"trouble" page:"trouble" enum:"stalled,slow,lost,not taken,held back,blocks others" doc:"Only jobs with this trouble. Default: all"`
}

var ListStuckJobs = Op[ListStuckJobsInput, []admin.StuckJob]{
	About: About{
		Topic: Topic{"stuck jobs", "stuck job", "7"}, Verb: "list", Scope: Read, SQL: "list_stuck_jobs", Command: "jobs stuck", Page: "stuck",
		Does: "List the jobs that are stuck, with why, since when and what helps",
		More: "Those that have been stuck longest are first, up to a thousand. The trouble of a job is: stalled, a worker has it and has sent no heartbeat " +
			"for 30 seconds; slow, it has run for more than a minute and for more than ten times as long as 95 of 100 jobs with its tag take; " +
			"lost, its worker fell silent and no other one has taken it; not taken, it has been due for 5 minutes and no worker takes jobs with its tag, " +
			"or for an hour while workers run others of them; held back, a tag that is paused or at its limit has held it back for 5 minutes; blocks others, " +
			"it failed or was cancelled, or waits for a job that was deleted, and other jobs wait behind it. Of the jobs that are stuck for one reason, " +
			"of one worker or one tag, there is the one that has been stuck longest, and others counts the rest, up to 100; so it does for jobs behind one that blocks them.",
		Example: "posthorn jobs stuck\nposthorn jobs stuck --trouble 'held back'",
		ByHand:  map[Face]string{Page: "it shows a hundred"},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *ListStuckJobsInput) ([]admin.StuckJob, error) {
		return a.StuckJobs(ctx, in.Trouble, mostStuck)
	},
}

var GetJobTimeline = Op[ByID, admin.JobTimeline]{
	About: About{
		Topic: jobs, Verb: "timeline", Scope: Read, Method: "GET", Path: "/v1/jobs/{id}/timeline", Name: "get-job-timeline", Go: "JobTimeline", SQL: "timed_job_history",
		Page: "job",
		Does: "Show where a job spent its time",
		More: "In parts, in the order in which they began: attempts with their workers, their steps, sleeps, waits for events and the time in the queue, each with " +
			"its seconds and its share of the whole; spent sums them up in a sentence. Of a job with very many attempts, the newest ones. " +
			"For a token that may not read some streams, events and keys are left out as in the steps of the job.",
		ByHand:  map[Face]string{HTTP: jobRoute, Page: "the page of the job draws it"},
		Without: map[Face]string{Command: "posthorn jobs show has it"},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *ByID) (admin.JobTimeline, error) {
		return a.JobTimeline(ctx, in.ID)
	},
}

var ListJobSteps = Op[ByID, []admin.JobStep]{
	About: About{
		Topic: jobs, Verb: "steps", Scope: Read, Method: "GET", Path: "/v1/jobs/{id}/steps", Name: "list-job-steps", Go: "JobSteps", SQL: "job_steps",
		Page: "job",
		Does: "List the steps of a job that are saved",
		More: "In the order in which they were saved, each with its result. Of a sleep, wakes_at is its end. Of a wait for an event, event_type and event_key say for which; its result is the id of the event. " +
			"To a token that may not read some streams the key is not shown, unless the event has come from another stream, and the result for an event of such a stream is withheld.",
		ByHand:  map[Face]string{HTTP: jobRoute, Page: "the page of the job lists them"},
		Without: map[Face]string{Command: "posthorn jobs show lists them"},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *ByID) ([]admin.JobStep, error) {
		return a.JobSteps(ctx, in.ID)
	},
}

// mostWaits bounds the jobs that are listed on each side of a job.
const mostWaits = 1000

var ListJobWaits = Op[ByID, []admin.JobWait]{
	About: About{
		Topic: jobs, Verb: "waits", Scope: Read, Method: "GET", Path: "/v1/jobs/{id}/waits", Name: "list-job-waits", Go: "JobWaits", SQL: "job_waits",
		Page: "job",
		Does: "List the jobs that a job waits for, and those that wait for it",
		More: "Up to 1,000 of each. Those that keep the job waiting until somebody acts are first: FAILED, CANCELLED and DELETED ones. " +
			"The job goes on when a FAILED one is reset, and completes.",
		ByHand:  map[Face]string{HTTP: jobRoute, Page: "the page of the job lists them"},
		Without: map[Face]string{Command: "posthorn jobs show lists them"},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *ByID) ([]admin.JobWait, error) {
		return a.JobWaits(ctx, in.ID, mostWaits)
	},
}

// EnqueueJobInput is one job.
type EnqueueJobInput struct {
	Namespace
	Body admin.NewJob
}

// EnqueuedJob is the result of EnqueueJob.
type EnqueuedJob struct {
	ID int64 `json:"id" doc:"The id of the job"`
}

var EnqueueJob = Op[EnqueueJobInput, EnqueuedJob]{
	About: About{
		Topic: jobs, Verb: "enqueue", Scope: JobsCreate, SQL: "enqueue_many", Path: "/v1/jobs", Command: "jobs enqueue TITLE [PAYLOAD] | enqueue --lines",
		Does: "Enqueue a job",
		More: "If a job has the same unique_key, the result is that job: a unique_key is in use while its job is pending, or for unique_for. " +
			"Over HTTP, 201 is the answer with a new job and 200 with such a job, and an Idempotency-Key is in use for a day.",
		Example: "posthorn jobs enqueue 'send welcome mail' '{\"user\": 7}' --tag mail",
		ByHand: map[Face]string{
			HTTP: jobRoute, Command: "--lines enqueues many, and periods are those of Go", Page: "the form can be filled in with another job",
		},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *EnqueueJobInput) (EnqueuedJob, error) {
		id, err := a.EnqueueJob(ctx, in.Body)
		return EnqueuedJob{id}, err
	},
	Done: func(_ *EnqueueJobInput, out EnqueuedJob) string { return fmt.Sprintf("job %d is enqueued", out.ID) },
}

// ChangeJobInput has the new values of a pending job.
type ChangeJobInput struct {
	ByID
	Body struct {
		Payload  json.RawMessage `json:"payload,omitempty" flag:"payload" doc:"The new payload, any JSON"`
		Priority *int            `json:"priority,omitempty" flag:"priority" doc:"The new priority; higher goes first"`
		RunAt    time.Time       `json:"run_at,omitzero" flag:"run-at" doc:"The new due time"`
	}
}

var ChangeJob = Op[ChangeJobInput, None]{
	About: About{
		Topic: jobs, Verb: "change", Scope: JobsCreate, Method: "PATCH", Path: "/v1/jobs/{id}",
		Does:    "Change a pending job",
		More:    "Changes the payload, the priority or the due time; what is left out stays as it is. A job that is not pending is refused.",
		Example: "posthorn jobs change 7 --priority 10\nposthorn jobs change 7 --run-at 2h --payload '{\"user\": 8}'",
		ByHand:  map[Face]string{HTTP: jobRoute, Command: "--run-at may be a duration from now", Page: "the form shows the job"},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *ChangeJobInput) (None, error) {
		return None{}, a.ChangeJob(ctx, in.ID, admin.JobChange(in.Body))
	},
	Done: func(in *ChangeJobInput, _ None) string { return fmt.Sprintf("job %d is changed", in.ID) },
}

// SelectedJobs selects jobs that are not finished, or that have failed.
type SelectedJobs struct {
	Status string   `json:"status" flag:"status" enum:"PENDING,PROCESSING,FAILED" doc:"The status of the jobs"`
	Tags   []string `json:"tags,omitempty" flag:"tag" page:"tag" maxItems:"100" doc:"Only jobs that have any of these tags. Default: all jobs of the status"`
}

func (s SelectedJobs) filter() admin.JobFilter {
	return admin.JobFilter{Status: s.Status, Tags: s.Tags}
}

// JobsInput selects jobs.
type JobsInput struct {
	Namespace
	Body SelectedJobs
}

// Selected returns the selection.
func (in *JobsInput) Selected() SelectedJobs { return in.Body }

// JobsAndReason selects jobs, and says why.
type JobsAndReason struct {
	SelectedJobs
	Reason string `json:"reason,omitempty" flag:"reason" page:"-" doc:"The reason, for the logs of the jobs"`
}

// RetryJobsInput selects jobs to be retried.
type RetryJobsInput struct {
	Namespace
	Body JobsAndReason
}

// Selected returns the selection.
func (in *RetryJobsInput) Selected() SelectedJobs { return in.Body.SelectedJobs }

// CancelJobsInput selects jobs to be cancelled.
type CancelJobsInput struct {
	Namespace
	Body struct {
		JobsAndReason
		JobsAfter string `json:"jobs_after,omitempty" flag:"jobs-after" enum:"keep,cancel,fail" doc:"Whether the jobs that wait for them, and the jobs behind those, stay as they are or end. Default: keep"`
	}
}

// Selected returns the selection.
func (in *CancelJobsInput) Selected() SelectedJobs { return in.Body.SelectedJobs }

// Selection is an input that selects jobs.
type Selection[In any] interface {
	*In
	Selected() SelectedJobs
}

// JobAction is something that is done to all jobs of a status and tags.
type JobAction[In any, S Selection[In]] struct {
	Verb, Does, More string
	Done             string // the verb in the past, such as retried
	One              About  // of the operation on one
	OneSentence      string // with the id
	Examples         string
	Keeps            bool // the jobs go on
	Do               func(a *admin.Admin, ctx context.Context, f admin.JobFilter, in S) (int64, error)
	DoOne            func(a *admin.Admin, ctx context.Context, id int64, in S) error
}

var RetryJobs = JobAction[RetryJobsInput, *RetryJobsInput]{
	Verb: "retry", Done: "retried", Keeps: true,
	One: About{
		Verb: "reset", Does: "Make a job pending again",
		More: "A job that is PROCESSING: its worker loses it, and retry_count stays. A job that has FAILED: retry_count is 0 again. " +
			"Any other job: 409.",
	},
	OneSentence: "job %d is pending again",
	Does:        "Start jobs again that have failed, or that a worker has",
	More:        "Failed jobs get all their retries again; those of other jobs stay counted. Jobs that wait for their next attempt are due at once. Workers that have one of them lose it.",
	Examples:    "posthorn jobs retry 7 8 --reason 'mail server is back'\nposthorn jobs retry --status failed --tag mail",
	Do: func(a *admin.Admin, ctx context.Context, f admin.JobFilter, in *RetryJobsInput) (int64, error) {
		return a.RetryJobs(ctx, f, in.Body.Reason)
	},
	DoOne: func(a *admin.Admin, ctx context.Context, id int64, in *RetryJobsInput) error {
		return a.ResetJob(ctx, id, in.Body.Reason)
	},
}

var CancelJobs = JobAction[CancelJobsInput, *CancelJobsInput]{
	Verb: "cancel", Done: "cancelled",
	One: About{
		Verb: "cancel", Scope: JobsCreate, Does: "Cancel a job that is not finished",
		More: "A worker that has the job loses it. A second call changes nothing. jobs_after says whether the jobs that wait for it, and the jobs behind them, stay, are cancelled or fail.",
	},
	OneSentence: "job %d is cancelled",
	Does:        "End jobs that are not finished",
	More:        "Workers that have one of them lose it. Cancelled jobs can be seen until retention drops them.",
	Examples:    "posthorn jobs cancel 7 --reason 'order was withdrawn'\nposthorn jobs cancel --status pending --tag report --yes",
	Do: func(a *admin.Admin, ctx context.Context, f admin.JobFilter, in *CancelJobsInput) (int64, error) {
		return a.CancelJobsAnd(ctx, f, in.Body.Reason, in.Body.JobsAfter)
	},
	DoOne: func(a *admin.Admin, ctx context.Context, id int64, in *CancelJobsInput) error {
		return a.CancelJobAnd(ctx, id, in.Body.Reason, in.Body.JobsAfter)
	},
}

// CancelJobInput names a job, and says whether the jobs that wait for it end too.
type CancelJobInput struct {
	ByID
	Reason    string `query:"reason" maxLength:"1000" doc:"Recorded in the log of the job" example:"order_withdrawn"`
	JobsAfter string `query:"jobs_after" enum:"keep,cancel,fail" doc:"Whether the jobs that wait for it, and the jobs behind them, stay as they are or end. Default: keep"`
}

// CancelJob is [CancelJobs] of one job.
var CancelJob = Op[CancelJobInput, None]{
	About: CancelJobs.about(),
	Call: func(ctx context.Context, a *admin.Admin, in *CancelJobInput) (None, error) {
		return None{}, a.CancelJobAnd(ctx, in.ID, in.Reason, in.JobsAfter)
	},
	Done: func(in *CancelJobInput, _ None) string { return fmt.Sprintf(CancelJobs.OneSentence, in.ID) },
}

var DeleteJobs = JobAction[JobsInput, *JobsInput]{
	Verb: "delete", Done: "deleted",
	One: About{
		Verb: "delete", Scope: JobsCreate, Path: "/v1/jobs/{id}", Does: "Delete a pending job",
		More: "409: the job is not pending. A finished job is dropped by retention.",
	},
	OneSentence: "job %d is deleted",
	Does:        "Delete jobs that no worker has taken yet",
	More:        "Deleted jobs are gone. To keep a record of them, cancel them instead.",
	Examples:    "posthorn jobs delete 7\nposthorn jobs delete --status pending --tag report --yes",
	Do: func(a *admin.Admin, ctx context.Context, f admin.JobFilter, _ *JobsInput) (int64, error) {
		return a.DeleteJobs(ctx, f)
	},
	DoOne: func(a *admin.Admin, ctx context.Context, id int64, _ *JobsInput) error { return a.DeleteJob(ctx, id) },
}

// Many is the operation on all jobs that are selected. It returns their number.
func (j JobAction[In, S]) Many() Op[In, int64] {
	return Op[In, int64]{
		About: About{
			Topic: jobs, Verb: j.Verb, Method: "POST", Path: "/v1/jobs/" + j.Verb, Name: j.Verb + "-jobs", Go: title(j.Verb + " jobs"), SQL: "steer_jobs",
			Command: "jobs " + j.Verb + " [ID…]", Page: "jobs/" + j.Verb,
			Does: j.Does, Example: j.Examples,
			More: j.More + " Jobs that come to match after the call has begun are left alone. Many jobs are changed in parts: a " +
				"call that is cut off has changed some, and the next call goes on. The result is their number.",
			ByHand: map[Face]string{
				HTTP:    "the number is the field count",
				Command: "it takes the ids of jobs too, and scripts that select are not asked before a retry",
				Page:    "it asks with the number, and shows the progress",
			},
		},
		Call: func(ctx context.Context, a *admin.Admin, in *In) (int64, error) {
			return j.Do(a, ctx, S(in).Selected().filter(), in)
		},
		Ask: func(ctx context.Context, a *admin.Admin, in *In) (string, error) {
			n, more, err := a.CountJobsToSteer(ctx, S(in).Selected().filter())
			if more {
				return fmt.Sprintf("%s %d or more jobs", j.Verb, n), err
			}
			return j.Verb + " " + Counted(n, "job"), err
		},
		Done: func(_ *In, n int64) string { return j.Done + " " + Counted(n, "job") },
	}
}

// about describes the operation on one job.
func (j JobAction[In, S]) about() About {
	about := j.One
	about.Topic, about.Path = jobs, cmp.Or(about.Path, "/v1/jobs/{id}/"+about.Verb)
	about.Command = "jobs " + j.Verb + " ID"
	about.ByHand = map[Face]string{HTTP: jobRoute, Command: "it is the command for many"}
	return about
}

// Single is the operation on one job.
func (j JobAction[In, S]) Single() Op[ByID, None] {
	about := j.about()
	about.ByHand[Page] = "it calls the route"
	return Op[ByID, None]{
		About: about,
		Call: func(ctx context.Context, a *admin.Admin, in *ByID) (None, error) {
			return None{}, j.DoOne(a, ctx, in.ID, new(In))
		},
		Done: func(in *ByID, _ None) string { return fmt.Sprintf(j.OneSentence, in.ID) },
	}
}
