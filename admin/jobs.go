package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/posthorn/posthorn/internal/pg"
)

// The statuses of jobs, for [JobFilter].Status and [JobStatus].Status.
const (
	JobPending    = "PENDING"
	JobProcessing = "PROCESSING"
	JobCompleted  = "COMPLETED"
	JobFailed     = "FAILED" // for good
	JobCancelled  = "CANCELLED"
)

// JobStatus is a job and its state.
type JobStatus struct {
	ID           int64           `json:"id"`
	Title        string          `json:"title"`
	Description  string          `json:"description,omitempty"`
	Tags         []string        `json:"tags"`
	Status       string          `json:"status"` // see [JobPending]
	State        string          `json:"state"`  // why it does not run: ready, later, retry, asleep, waiting for an event, behind other jobs, held back by a limit or paused; or running, completed, failed or cancelled
	Why          string          `json:"why"`    // a sentence about the state
	Payload      json.RawMessage `json:"payload"`
	Metadata     json.RawMessage `json:"metadata,omitempty"`
	Priority     int             `json:"priority"`
	RunAt        time.Time       `json:"run_at"`      // the job runs then or later
	RetryCount   int             `json:"retry_count"` // attempts that failed
	MaxRetries   int             `json:"max_retries"`
	RetryDelays  []time.Duration `json:"-" db:"retry_delays"` // before further attempts; none: 5 minutes each
	NextRetryAt  time.Time       `json:"next_retry_at,omitzero"`
	UniqueKey    string          `json:"unique_key,omitempty"`
	FairKey      string          `json:"fair_key,omitempty"`  // takes turns with other keys
	Weight       float64         `json:"weight,omitempty"`    // its share, with a FairKey
	Attempt      int             `json:"attempt"`             // the attempt that runs or ended last; 0 before the first
	Worker       string          `json:"worker_id,omitempty"` // that has the job, or had it last
	PickedAt     time.Time       `json:"picked_at,omitzero"`
	StartedAt    time.Time       `json:"started_at,omitzero"`
	LeaseUntil   time.Time       `json:"lease_until,omitzero"`
	Progress     json.RawMessage `json:"progress,omitempty"`
	Result       json.RawMessage `json:"result,omitempty"`
	ErrorMessage string          `json:"error_message,omitempty"` // of the last attempt that failed
	Stalled      bool            `json:"stalled,omitempty"`       // its worker has sent no heartbeat for 30 seconds
	CreatedAt    time.Time       `json:"created_at"`
	UpdatedAt    time.Time       `json:"updated_at"`
	FinishedAt   time.Time       `json:"finished_at,omitzero"`
	WaitsFor     []int64         `json:"waits_for,omitempty"` // jobs that must be completed before it, up to 100; see [Admin.JobWaits]
}

// Job returns a job. Jobs that are finished are kept for job_retention_period.
func (a *Admin) Job(ctx context.Context, id int64) (JobStatus, error) {
	found, err := rows[JobStatus](ctx, a.db, "show job", "select * from posthorn.get_job($1::bigint, $2::text)", id, a.namespace)
	if err == nil && len(found) == 0 { // it was dropped meanwhile
		err = pg.NotFound(fmt.Sprintf("show job: job %d does not exist", id),
			"Ids are what enqueue returned. Finished jobs are kept for job_retention_period.")
	}
	if err != nil {
		return JobStatus{}, err
	}
	found, err = a.explainWaits(ctx, found)
	return found[0], err
}

// explainWaits names the event in the sentence about each of some jobs that wait for one, if the caller may see events of all
// streams.
func (a *Admin) explainWaits(ctx context.Context, jobs []JobStatus) ([]JobStatus, error) {
	var waiting []int64
	places := map[int64]int{}
	for i, j := range jobs {
		if j.State == "waiting for an event" {
			waiting = append(waiting, j.ID)
			places[j.ID] = i
		}
	}
	if len(waiting) == 0 {
		return jobs, nil
	}
	type wait struct {
		Job int64  `db:"job"`
		Why string `db:"why"`
	}
	waits, err := rows[wait](ctx, a.db, "list jobs", "select * from posthorn.explain_waits($1::text, $2::bigint[], $3::text[])", a.namespace, waiting, list(a.hidden))
	for _, w := range waits {
		jobs[places[w.Job]].Why = w.Why
	}
	return jobs, err
}

// JobFilter selects jobs. The zero value selects all jobs of the namespace. Its tags are
// those of package op: the HTTP API, the command line and the page have the same filter.
type JobFilter struct {
	Status string   `query:"status" flag:"status" enum:"PENDING,PROCESSING,COMPLETED,FAILED,CANCELLED" doc:"Only jobs of this status"`
	State  string   `query:"state" flag:"state" page:"-" enum:"ready,later,retry,asleep,waiting for an event,behind other jobs,held back by a limit,paused,running,completed,failed,cancelled" doc:"Only jobs in this state, which says why a job does not run"`
	Tags   []string `query:"tags" flag:"tag" page:"tag" maxItems:"100" doc:"Only jobs that have any of these tags"`
	// The page lists jobs by their numbers, and marks those that are stalled.
	Stalled string `query:"stalled" flag:"stalled" page:"-" enum:"true,false" doc:"true: only jobs whose worker has sent no report and no heartbeat for 30 seconds; false: only others"`
	Limit   int    `query:"limit" page:"-" minimum:"1" maximum:"1000" default:"20" doc:"The length of a page"`
	Offset  int64  `query:"offset" flag:"offset" page:"-" minimum:"0" maximum:"1000000000" default:"0" doc:"How many jobs are before the page"`

	NewestFirst bool // Default: oldest first
}

// selection has the arguments of SQL functions that select jobs.
func (a *Admin) selection(f JobFilter) []any {
	return []any{a.namespace, pg.Optional(strings.ToUpper(f.Status)), list(f.Tags), pg.Optional(f.Stalled), pg.Optional(strings.ToLower(f.State))}
}

// Jobs returns a page of jobs.
func (a *Admin) Jobs(ctx context.Context, f JobFilter) ([]JobStatus, error) {
	jobs, err := rows[JobStatus](ctx, a.db, "list jobs", `
		select * from posthorn.list_jobs($1::text, $2::text, $3::text[], $4::text::boolean, $6::int, $7::bigint, $8::boolean, state => $5::text)`,
		append(a.selection(f), cmp.Or(f.Limit, 20), f.Offset, f.NewestFirst)...)
	if err != nil {
		return nil, err
	}
	return a.explainWaits(ctx, jobs)
}

// CountJobs returns the number of jobs that a filter selects, on all pages.
func (a *Admin) CountJobs(ctx context.Context, f JobFilter) (int64, error) {
	return pg.Value[int64](ctx, a.db, "count jobs", "select posthorn.count_jobs($1::text, $2::text, $3::text[], $4::text::boolean, $5::text)", a.selection(f)...)
}

// JobEntry is an entry of the log of a job: an action and the worker that did it.
type JobEntry struct {
	ID              int64     `json:"id"`
	Job             int64     `json:"event_id"`
	Worker          string    `json:"worker_id,omitempty"`
	Action          string    `json:"action"` // PICKED, STARTED, COMPLETED, FAILED, EXPIRED, RESET, CANCELLED, SNOOZED or CHANGED
	Attempt         int       `json:"attempt"`
	StatusCode      *int      `json:"status_code,omitempty"`
	ExecutionTimeMS *int64    `json:"execution_time_ms,omitempty"`
	RetryCount      int       `json:"retry_count,omitempty"`  // of failures
	NextRetryAt     time.Time `json:"next_retry_at,omitzero"` // of failures; zero: it was the last
	ErrorMessage    string    `json:"error_message,omitempty"`
	Reason          string    `json:"reason,omitempty"` // of RESET and CANCELLED
	CreatedAt       time.Time `json:"created_at"`
	TookMS          float64   `json:"took_ms,omitempty"` // of an entry that ends an attempt, also where its worker did not measure it
}

// Took is how long the attempt took that has ended with the entry; 0 for other entries.
func (e JobEntry) Took() time.Duration { return time.Duration(e.TookMS * float64(time.Millisecond)) }

// JobOutlook says where a job stands and since when, and how its failures count.
type JobOutlook struct {
	Standing  string    `json:"standing"` // where it stands, in a sentence
	Since     time.Time `json:"since"`
	GoesOn    string    `json:"goes_on,omitempty"` // what the time is called at which it goes on, such as "sleeps until"; see [JobStatus].NextRetryAt
	Failures  string    `json:"failures"`          // how many there were and how many of them count for its retries, in words
	Permanent bool      `json:"permanent"`         // it failed with retries left, since its worker said that a retry cannot help
}

// JobOutlook returns the outlook of a job.
func (a *Admin) JobOutlook(ctx context.Context, id int64) (JobOutlook, error) {
	found, err := rows[JobOutlook](ctx, a.db, "show job", "select * from posthorn.describe_job($1::bigint, $2::text, $3::text[])", id, a.namespace, list(a.hidden))
	return only(a, found, err, "job", strconv.FormatInt(id, 10), "Ids are what enqueue returned.")
}

// JobLog returns the newest 10,000 entries of the log of a job, in order.
func (a *Admin) JobLog(ctx context.Context, id int64) ([]JobEntry, error) {
	return rows[JobEntry](ctx, a.db, "show job", "select * from posthorn.timed_job_history($1::bigint, namespace => $2::text)", id, a.namespace)
}

// RecentJobLog returns the newest entries of the log of a job, in order, up to most. More
// tells whether there are older ones.
func (a *Admin) RecentJobLog(ctx context.Context, id int64, most int) (log []JobEntry, more bool, err error) {
	log, err = rows[JobEntry](ctx, a.db, "show job", "select * from posthorn.timed_job_history($1::bigint, $2::int, $3::text)", id, most+1, a.namespace)
	if len(log) > most {
		return log[1:], true, err
	}
	return log, false, err
}

// JobStep is the result of a step of a job, a sleep of the job, or its wait for an event.
type JobStep struct {
	Name    string          `json:"name"`
	Attempt int             `json:"attempt"`           // the one that saved it; of a wait, the one that began it
	SavedAt time.Time       `json:"saved_at"`          // of a wait that goes on: when it began
	WakesAt time.Time       `json:"wakes_at,omitzero"` // of a sleep: its end; of a wait: its timeout
	Result  json.RawMessage `json:"result"`
	// Of a wait: the event that the job waits for. Result is null meanwhile. The key is empty for a
	// caller who may not read some streams, unless the event has come from another stream.
	EventType string `json:"event_type,omitempty"`
	EventKey  string `json:"event_key,omitempty"`
}

// Awaited is the event that a wait asks for, in words.
func (s JobStep) Awaited() string {
	if s.EventKey == "" {
		return s.EventType
	}
	return s.EventType + " of " + s.EventKey
}

// Withheld reports whether a wait has got an event that the caller may not read.
func (s JobStep) Withheld() bool {
	var came struct {
		Withheld bool `json:"withheld"`
	}
	if s.EventType != "" {
		_ = json.Unmarshal(s.Result, &came) // an event that has not come is not withheld
	}
	return came.Withheld
}

// AwaitedEvent returns the event that a wait has got. It is 0 while the job waits, if no event
// came in time, and for steps that are no waits: their results may have a field event_id too.
func (s JobStep) AwaitedEvent() int64 {
	var came struct {
		ID int64 `json:"event_id"`
	}
	if s.EventType != "" {
		_ = json.Unmarshal(s.Result, &came) // an event that has not come has no id
	}
	return came.ID
}

// Waits reports whether a wait for an event has not ended.
func (s JobStep) Waits() bool {
	return s.EventType != "" && (s.Result == nil || string(s.Result) == "null")
}

// JobSteps returns the steps of a job that are saved, in order.
func (a *Admin) JobSteps(ctx context.Context, id int64) ([]JobStep, error) {
	return rows[JobStep](ctx, a.db, "list steps", "select * from posthorn.job_steps($1::bigint, $2::text, $3::text[])", id, a.namespace, list(a.hidden))
}

// JobWait is a job that must be completed before another one, or a job that waits for it.
type JobWait struct {
	Side   string `json:"side"` // before or after
	ID     int64  `json:"id"`
	Title  string `json:"title,omitempty"`
	Status string `json:"status"` // see [JobPending]; DELETED: the job does not exist any more
}

// Blocks tells whether the other job waits until somebody acts: it will not be completed
// by itself.
func (w JobWait) Blocks() bool {
	return w.Side == "before" && w.Status != JobPending && w.Status != JobProcessing && w.Status != JobCompleted
}

// Why says why the other job does not go on, or nothing.
func (w JobWait) Why() string {
	switch {
	case !w.Blocks():
		return ""
	case w.Status == JobFailed:
		return fmt.Sprintf("waits for job %d, which failed: retry that job, or cancel this one", w.ID)
	}
	return fmt.Sprintf("waits for job %d, which is %s: cancel this one", w.ID, strings.ToLower(w.Status))
}

// JobWaits returns the jobs that must be completed before a job, those first that keep it
// waiting until somebody acts, and then the jobs that wait for it: up to most of each.
func (a *Admin) JobWaits(ctx context.Context, id int64, most int) ([]JobWait, error) {
	return rows[JobWait](ctx, a.db, "list waits", "select * from posthorn.job_waits($1::bigint, $2::text, $3::int)", id, a.namespace, most)
}

// ResetJob lets workers have a job at once that a worker has, that has failed for good or
// that waits for its next attempt. A job that has failed for good has all its retries
// again. The worker loses the job.
func (a *Admin) ResetJob(ctx context.Context, id int64, reason string) error {
	return a.change(ctx, noStream, entry{"reset-job", strconv.FormatInt(id, 10), map[string]string{"reason": reason}}, "select posthorn.reset_job($1::bigint, $2::text, $3::text)",
		id, pg.Optional(pg.Storable(reason)), a.namespace)
}

// CancelJob ends a job that is not finished. If a worker has the job, the context of the
// job ends within seconds, and reports of the worker are refused. Jobs that wait for it
// stay as they are, see [Admin.CancelJobAnd]. Cancelling again changes nothing.
func (a *Admin) CancelJob(ctx context.Context, id int64, reason string) error {
	return a.CancelJobAnd(ctx, id, reason, "")
}

// CancelJobAnd is [Admin.CancelJob], and says whether the jobs that wait for the
// job, and the jobs behind them, stay as they are ("keep" or ""), are cancelled ("cancel")
// or fail ("fail").
func (a *Admin) CancelJobAnd(ctx context.Context, id int64, reason, jobsAfter string) error {
	detail := struct {
		Reason    string `json:"reason"`
		JobsAfter string `json:"jobs_after,omitempty"`
	}{reason, jobsAfter}
	return a.change(ctx, noStream, entry{"cancel-job", strconv.FormatInt(id, 10), detail}, "select posthorn.cancel_job($1::bigint, $2::text, $3::text, $4::text)",
		id, pg.Optional(pg.Storable(reason)), a.namespace, pg.Optional(jobsAfter))
}

// JobChange has the new values of a pending job. Its zero fields change nothing.
type JobChange struct {
	Payload  json.RawMessage
	Priority *int
	RunAt    time.Time
}

// ChangeJob changes a job that no worker has taken yet.
func (a *Admin) ChangeJob(ctx context.Context, id int64, c JobChange) error {
	return a.change(ctx, noStream, entry{"change-job", strconv.FormatInt(id, 10), map[string]any{"priority": c.Priority, "run_at": pg.Optional(c.RunAt)}}, `
		select posthorn.change_job($1::bigint, $2::json, $3::int, $4::timestamptz, $5::text)`,
		id, pg.Document(c.Payload), c.Priority, pg.Optional(c.RunAt), a.namespace)
}

// DeleteJob deletes a job that no worker has taken yet.
func (a *Admin) DeleteJob(ctx context.Context, id int64) error {
	return a.change(ctx, noStream, entry{"delete-job", strconv.FormatInt(id, 10), nil}, "select posthorn.delete_job($1::bigint, $2::text)", id, a.namespace)
}

// JobLimit limits the jobs with a tag that may run, over all workers. Zero allows any
// number of jobs, and a negative number allows none.
type JobLimit struct {
	MaxRunning int           // at once
	MaxStarted int           // in a period
	Period     time.Duration // with MaxStarted
}

// String is the limit in words, such as "5 at once, 100 per 1m0s".
func (l JobLimit) String() string {
	var limits []string
	if l.MaxRunning != 0 {
		limits = append(limits, fmt.Sprintf("%d at once", max(l.MaxRunning, 0)))
	}
	if l.MaxStarted != 0 {
		limits = append(limits, fmt.Sprintf("%d per %v", max(l.MaxStarted, 0), l.Period))
	}
	return cmp.Or(strings.Join(limits, ", "), "no limit")
}

// SetJobLimit limits how many jobs with a tag run at once, and how many start in a
// period. Jobs that wait for the limit keep their order. A tag that ends with * is a
// pattern: the limit holds for each tag that begins so, by itself, unless a longer
// pattern or the tag itself has a limit.
func (a *Admin) SetJobLimit(ctx context.Context, tag string, l JobLimit) error {
	most := func(n int) *int {
		if n == 0 {
			return nil
		}
		n = max(n, 0)
		return &n
	}
	return a.change(ctx, noStream, entry{"set-job-limit", tag, l}, "select posthorn.set_job_limit($1::text, $2::text, $3::int, $4::int, $5::text::interval)",
		a.namespace, tag, most(l.MaxRunning), most(l.MaxStarted), pg.OptionalPeriod(pg.Optional(l.Period)))
}

// PauseJobTag stops jobs with a tag, or with each tag of a pattern such as "mail:*", from
// being handed out until [Admin.ResumeJobTag]. Workers keep the jobs that they have.
func (a *Admin) PauseJobTag(ctx context.Context, tag string) error {
	return a.change(ctx, noStream, entry{"pause-job-tag", tag, nil}, "select posthorn.pause_job_tag($1::text, $2::text)", a.namespace, tag)
}

// ResumeJobTag ends the pause of a tag or pattern, and reports whether it was paused.
func (a *Admin) ResumeJobTag(ctx context.Context, tag string) (bool, error) {
	return changed[bool](ctx, a, noStream, entry{"resume-job-tag", tag, nil}, "select posthorn.resume_job_tag($1::text, $2::text)", a.namespace, tag)
}

// JobLimitStatus is a tag or pattern that is paused or has limits, with the number of its
// jobs that run, started and wait: of a pattern, jobs whose tags have no closer limit.
type JobLimitStatus struct {
	Tag           string    `json:"tag"`
	MaxRunning    int       `json:"max_running,omitempty"` // as in [JobLimit]
	MaxStarted    int       `json:"max_started,omitempty"`
	PeriodSeconds float64   `json:"period_seconds,omitempty"`
	PausedAt      time.Time `json:"paused_at,omitzero"`
	Running       int64     `json:"running"`
	Started       int64     `json:"started"`               // in the last period
	HeldBack      int64     `json:"held_back" db:"parked"` // due jobs that wait for the tag or for a worker; up to 10,000
}

// Pattern reports whether the limit is one of a pattern.
func (s JobLimitStatus) Pattern() bool { return strings.HasSuffix(s.Tag, "*") }

// Limit returns the limit of the tag.
func (s JobLimitStatus) Limit() JobLimit {
	return JobLimit{s.MaxRunning, s.MaxStarted, time.Duration(s.PeriodSeconds * float64(time.Second))}
}

// JobLimits returns the tags that are paused or have limits.
func (a *Admin) JobLimits(ctx context.Context) ([]JobLimitStatus, error) {
	return rows[JobLimitStatus](ctx, a.db, "list job limits", `
		select tag, coalesce(nullif(max_running, 0), -1 - max_running) as max_running,
			coalesce(nullif(max_started, 0), -1 - max_started) as max_started,
			extract(epoch from period) as period_seconds, paused_at, running, started, parked
		from posthorn.list_job_limits($1::text)`, a.namespace)
}
