package main

import (
	"context"
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/posthorn/posthorn/admin"
)

// jobDetails is what is printed about one job.
type jobDetails struct {
	admin.JobStatus
	Log []admin.JobEntry `json:"log"`
}

var jobsShow = showing[jobDetails]{
	about: about{
		use:     "show ID",
		short:   "Show one job, with its payload and its log",
		example: "  posthorn jobs show 7",
	},
	load: func(ctx context.Context, adm *admin.Admin, name string) (d jobDetails, err error) {
		id, err := jobID(name)
		if err != nil {
			return d, err
		}
		if d.JobStatus, err = adm.Job(ctx, id); err != nil {
			return d, err
		}
		log, err := adm.JobLog(ctx, id)
		d.Log = append([]admin.JobEntry{}, log...)
		return d, err
	},
	print: printJob,
}

func printJob(w io.Writer, d jobDetails) error {
	f := newFields(w)
	f.field("id", d.ID)
	f.field("title", d.Title)
	f.field("description", d.Description)
	f.field("tags", strings.Join(d.Tags, ", "))
	f.field("status", jobState(d.JobStatus))
	f.field("error", d.ErrorMessage)
	f.field("attempt", d.Attempt)
	f.field("failures", d.RetryCount)
	f.field("max retries", d.MaxRetries)
	f.field("next retry", d.NextRetryAt)
	f.field("priority", d.Priority)
	f.field("run at", d.RunAt)
	f.field("unique key", d.UniqueKey)
	f.field("worker", d.Worker)
	f.field("lease until", d.LeaseUntil)
	f.field("created", d.CreatedAt)
	f.field("updated", d.UpdatedAt)
	f.field("finished", d.FinishedAt)
	if err := f.flush(); err != nil {
		return err
	}
	var parts strings.Builder
	for _, part := range []struct {
		name     string
		document json.RawMessage
	}{{"payload", d.Payload}, {"metadata", d.Metadata}, {"progress", d.Progress}, {"result", d.Result}} {
		if len(part.document) > 0 {
			parts.WriteString("\n" + part.name + "\n" + indented(part.document) + "\n")
		}
	}
	if _, err := io.WriteString(w, parts.String()+"\n"); err != nil {
		return err
	}
	return jobLogColumns.print(w, d.Log)
}

var jobLogColumns = columns[admin.JobEntry]{"at|action|attempt|worker|took|what", func(e admin.JobEntry) []any {
	took := ""
	if e.ExecutionTimeMS != nil {
		took = (time.Duration(*e.ExecutionTimeMS) * time.Millisecond).String()
	}
	what, _, _ := strings.Cut(e.ErrorMessage+e.Reason, "\n") // a stack is in --json
	return []any{e.CreatedAt, e.Action, e.Attempt, e.Worker, took, what}
}}
