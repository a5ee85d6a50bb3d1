package main

import (
	"encoding/json"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

// jobDetails is what is printed about one job.
type jobDetails struct {
	admin.JobStatus
	Log []admin.JobEntry `json:"log"`
}

func newJobsShow(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show ID",
		Short:   "Show one job, with its payload and its log",
		Example: "  posthorn jobs show 7",
		Args:    cobra.ExactArgs(1),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := jobID(args[0])
		if err != nil {
			return err
		}
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			var d jobDetails
			if d.JobStatus, err = adm.Job(cmd.Context(), id); err != nil {
				return err
			}
			if d.Log, err = adm.JobLog(cmd.Context(), id); err != nil {
				return err
			}
			if *asJSON {
				d.Log = append([]admin.JobEntry{}, d.Log...)
				return printJSON(cmd.OutOrStdout(), d)
			}
			return printJob(cmd.OutOrStdout(), d)
		})
	}
	return cmd
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
	return printJobLog(w, d.Log)
}

func printJobLog(w io.Writer, log []admin.JobEntry) error {
	t := newTable(w, "at", "action", "attempt", "worker", "took", "what")
	for _, e := range log {
		took := ""
		if e.ExecutionTimeMS != nil {
			took = (time.Duration(*e.ExecutionTimeMS) * time.Millisecond).String()
		}
		what, _, _ := strings.Cut(e.ErrorMessage+e.Reason, "\n") // a stack is in --json
		t.row(e.CreatedAt, e.Action, e.Attempt, e.Worker, took, what)
	}
	return t.flush()
}
