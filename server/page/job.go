package page

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func (p *Pages) job() {
	p.screen(Screen{Path: "job", Under: "jobs", Live: true, Show: showJob})
	p.screen(Screen{Path: "job/change", Under: "jobs", Scope: "jobs:create", Show: askJobChange})
	p.screen(Screen{Path: "job/enqueue", Under: "jobs", Scope: "jobs:create", Show: askNewJob})
	p.action(Action{Path: "job/reset", Do: onJob(http.MethodPost, "/reset", "is pending again")})
	p.operation(op.CancelJob, func(r *Request) string { return r.Link("job", "id", r.Value("id")) })
	p.action(Action{Path: "job/delete", Scope: "jobs:create", Do: onJob(http.MethodDelete, "", "is deleted")})
	p.action(Action{Path: "job/change", Scope: "jobs:create", Do: changeJob})
	p.action(Action{Path: "job/enqueue", Scope: "jobs:create", Do: enqueueJob})
}

// jobPage is a job as its template shows it.
type jobPage struct {
	Job      admin.JobStatus
	Steps    []admin.JobStep
	Order    order
	Log      []entry
	MoreLog  bool // older entries
	Timeline timeline

	Outlook admin.JobOutlook
}

// entry is an entry of the history of a job.
type entry struct {
	admin.JobEntry
	Next   string // what comes at the time of the next attempt
	Latest bool   // it may come before that
}

// entriesOf makes a history. A sleep ends at its time, and a wait with its event, or then at the latest.
func entriesOf(log []admin.JobEntry, steps []admin.JobStep) (entries []entry) {
	for _, e := range log {
		shown := entry{JobEntry: e, Next: "next attempt"}
		if i := slices.IndexFunc(steps, func(s admin.JobStep) bool { return s.Ends(e) }); i >= 0 {
			shown.Next, shown.Latest = "until", steps[i].EventType != ""
		}
		entries = append(entries, shown)
	}
	return entries
}

// mostEntries bounds the history of a job that is shown.
const mostEntries = 500

func showJob(ctx context.Context, r *Request) (*View, error) {
	id, err := r.Number("id")
	if err != nil {
		return nil, err
	}
	page, waits, log, life := jobPage{}, []admin.JobWait{}, []admin.JobEntry{}, admin.JobTimeline{}
	for _, look := range []func() error{
		func() error { page.Job, err = r.Admin.Job(ctx, id); return err },
		func() error { page.Steps, err = r.Admin.JobSteps(ctx, id); return err },
		func() error { waits, err = r.Admin.JobWaits(ctx, id, mostWaits); return err },
		func() error { log, page.MoreLog, err = r.Admin.RecentJobLog(ctx, id, mostEntries); return err },
		func() error { page.Outlook, err = r.Admin.JobOutlook(ctx, id); return err },
		func() error { life, err = r.Admin.JobTimeline(ctx, id); return err },
	} {
		if err := look(); err != nil {
			return nil, err
		}
	}
	page.Log = entriesOf(log, page.Steps)
	page.Order = orderOf(page.Job, waits)
	page.Timeline = timelineOf(life)
	return &View{Title: fmt.Sprintf("Job %d", id), Data: page}, nil
}

func onJob(method, verb, done string) func(context.Context, *Request) (string, string, error) {
	return func(ctx context.Context, r *Request) (to, notice string, err error) {
		id, err := r.Number("id")
		if err != nil {
			return "", "", err
		}
		if err := r.Call(ctx, method, fmt.Sprintf("/v1/jobs/%d%s", id, verb), nil, nil); err != nil {
			return "", "", err
		}
		if method == http.MethodDelete {
			to = r.Link("jobs")
		}
		return to, fmt.Sprintf("Job %d %s.", id, done), nil
	}
}

func askJobChange(ctx context.Context, r *Request) (*View, error) {
	id, err := r.Number("id")
	if err != nil {
		return nil, err
	}
	job, err := r.Admin.Job(ctx, id)
	return &View{Title: fmt.Sprintf("Change job %d", id), Template: "job_form.html", Data: struct {
		Action, Heading, Label string
		Job                    admin.JobStatus
	}{"job/change", fmt.Sprintf("Change job %d", id), "Change", job}}, err
}

// askNewJob shows a form for a new job: empty, or with the fields of the job from.
func askNewJob(ctx context.Context, r *Request) (*View, error) {
	job := admin.JobStatus{Payload: json.RawMessage("{}"), MaxRetries: 3}
	from, err := r.optionalNumber("from")
	if err == nil && from > 0 {
		job, err = r.Admin.Job(ctx, from)
	}
	job.ID, job.RunAt = 0, time.Time{}
	return &View{Title: "Enqueue a job", Template: "job_form.html", Data: struct {
		Action, Heading, Label string
		Job                    admin.JobStatus
	}{"job/enqueue", "Enqueue a job", "Enqueue", job}}, err
}

func changeJob(ctx context.Context, r *Request) (string, string, error) {
	id, err := r.Number("id")
	if err != nil {
		return "", "", err
	}
	var in op.ChangeJobInput
	if err := r.Fill(&in); err != nil {
		return "", "", err
	}
	err = r.Call(ctx, http.MethodPatch, fmt.Sprintf("/v1/jobs/%d", id), in.Body, nil)
	return r.Link("job", "id", id), fmt.Sprintf("Job %d is changed.", id), err
}

func enqueueJob(ctx context.Context, r *Request) (string, string, error) {
	var in op.EnqueueJobInput
	if err := r.Fill(&in); err != nil {
		return "", "", err
	}
	body := struct {
		admin.NewJob
		Tags string `json:"tags"` // POST /v1/jobs takes them as a text
	}{in.Body, r.Value("tags")}
	var made struct{ ID int64 }
	err := r.Call(ctx, http.MethodPost, "/v1/jobs", body, &made)
	return r.Link("job", "id", made.ID), fmt.Sprintf("Job %d is enqueued.", made.ID), err
}
