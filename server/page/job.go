package page

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
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
	Standing string
	Steps    []admin.JobStep
	Order    order
	Log      []admin.JobEntry
	MoreLog  bool // older entries
	Timeline timeline
}

// mostEntries bounds the history of a job that is shown.
const mostEntries = 500

func showJob(ctx context.Context, r *Request) (*View, error) {
	id, err := r.Number("id")
	if err != nil {
		return nil, err
	}
	page, waits, now := jobPage{}, []admin.JobWait{}, time.Time{}
	for _, look := range []func() error{
		func() error { page.Job, err = r.Admin.Job(ctx, id); return err },
		func() error { page.Steps, err = r.Admin.JobSteps(ctx, id); return err },
		func() error { waits, err = r.Admin.JobWaits(ctx, id, mostWaits); return err },
		func() error { page.Log, page.MoreLog, err = r.Admin.RecentJobLog(ctx, id, mostEntries); return err },
		func() error { now, err = r.Admin.Now(ctx); return err },
	} {
		if err := look(); err != nil {
			return nil, err
		}
	}
	page.Standing = standing(page.Job)
	page.Order = orderOf(page.Job, waits)
	page.Timeline = timelineOf(page.Job, page.Steps, history{page.Log, page.MoreLog}, now)
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
	body, err := jobFields(r)
	if err != nil {
		return "", "", err
	}
	err = r.Call(ctx, http.MethodPatch, fmt.Sprintf("/v1/jobs/%d", id), body, nil)
	return r.Link("job", "id", id), fmt.Sprintf("Job %d is changed.", id), err
}

func enqueueJob(ctx context.Context, r *Request) (string, string, error) {
	body, err := jobFields(r)
	if err != nil {
		return "", "", err
	}
	body["title"], body["tags"] = r.Value("title"), r.Value("tags")
	if text := strings.TrimSpace(r.Value("max_retries")); text != "" {
		if body["max_retries"], err = wholeNumber("max_retries", text); err != nil {
			return "", "", err
		}
	}
	if key := r.Value("fair_key"); key != "" {
		body["fair_key"] = key
	}
	if text := strings.TrimSpace(r.Value("weight")); text != "" {
		if body["weight"], err = strconv.ParseFloat(text, 64); err != nil {
			return "", "", invalid("weight is not a number", "Leave it empty for 1.")
		}
	}
	var made struct{ ID int64 }
	err = r.Call(ctx, http.MethodPost, "/v1/jobs", body, &made)
	return r.Link("job", "id", made.ID), fmt.Sprintf("Job %d is enqueued.", made.ID), err
}

// jobFields returns the fields of the form that a change and a new job have in common.
func jobFields(r *Request) (map[string]any, error) {
	body := map[string]any{}
	if text := strings.TrimSpace(r.Value("payload")); text != "" {
		if !json.Valid([]byte(text)) {
			return nil, invalid("the payload is not valid JSON", `Text needs double quotes: "like this".`)
		}
		body["payload"] = json.RawMessage(text)
	}
	if text := strings.TrimSpace(r.Value("priority")); text != "" {
		priority, err := wholeNumber("priority", text)
		if err != nil {
			return nil, err
		}
		body["priority"] = priority
	}
	if text := strings.TrimSpace(r.Value("run_at")); text != "" {
		at, err := time.Parse("2006-01-02T15:04", text)
		if err != nil {
			return nil, invalid("the due time cannot be read: "+text, "Give date and time in UTC, such as 2026-12-01T08:00.")
		}
		body["run_at"] = at
	}
	return body, nil
}

func wholeNumber(name, text string) (int32, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil {
		return 0, invalid(name+" is not a whole number: "+text, "")
	}
	return int32(n), nil
}
