package main

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func newJobs(a *app) *cobra.Command {
	return parent(about{
		use:   "jobs",
		short: "Enqueue, show and manage jobs",
		long: `A job is work for exactly one worker, found by its tags, with a status and a
history.`,
	},
		newJobsList(a),
		jobsShow.build(a),
		newJobsEnqueue(a),
		newJobsAction(a, op.RetryJobs),
		newJobsAction(a, op.CancelJobs),
		newJobsChange(a),
		newJobsAction(a, op.DeleteJobs),
		change(a, op.PauseJobTag),
		change(a, op.ResumeJobTag),
		newJobsLimit(a),
		list(a, op.ListJobLimits, "", jobLimitColumns),
	)
}

// watchPause is the pause between two lists of --watch.
const watchPause = time.Second

// mostJobs is one less than the database lists, since the command asks for one more.
const mostJobs = 9_999

func newJobsList(a *app) *cobra.Command {
	cmd := aboutOf(op.ListJobs, "The newest are first. A job is stalled when it has had no heartbeat of its worker for 30 seconds.").command()
	f := admin.JobFilter{NewestFirst: true}
	flags := cmd.Flags()
	addFlags(flags, &f)
	limitVar(flags, &f.Limit, 20, mostJobs, "list so many")
	watch := flags.Bool("watch", false, "list again every second, until interrupted")
	asJSON := jsonFlag(cmd)
	cmd.MarkFlagsMutuallyExclusive("watch", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			if *watch {
				return watchJobs(cmd.Context(), adm, cmd.OutOrStdout(), f)
			}
			shown := f.Limit
			f.Limit++ // to see whether there are more
			jobs, err := adm.Jobs(cmd.Context(), f)
			if err != nil {
				return err
			}
			if jobs, err = cut(cmd, jobs, shown); err != nil {
				return err
			}
			return jobColumns.printOrJSON(cmd.OutOrStdout(), jobs, *asJSON)
		})
	}
	return cmd
}

// watchJobs prints the list again and again. On a terminal each list replaces the previous
// one.
func watchJobs(ctx context.Context, adm *admin.Admin, w io.Writer, f admin.JobFilter) error {
	clear := ""
	if isTerminal(terminalOf(w)) {
		clear = "\x1b[H\x1b[2J"
	}
	for {
		jobs, err := adm.Jobs(ctx, f)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if _, err := io.WriteString(terminalOf(w), clear); err != nil {
			return err
		}
		if err := jobColumns.print(w, jobs); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(watchPause):
		}
	}
}

var jobColumns = columns[admin.JobStatus]{"id|status|tags|attempt|due|worker|title|state|why", func(j admin.JobStatus) []any {
	return []any{j.ID, jobStatus(j), strings.Join(j.Tags, ","), j.Attempt, jobDue(j), j.Worker, j.Title, j.State, j.Why}
}}

func jobStatus(j admin.JobStatus) string {
	status := strings.ToLower(j.Status)
	if j.Stalled {
		status += ", stalled"
	}
	return status
}

// jobDue is the due time of a pending job.
func jobDue(j admin.JobStatus) time.Time {
	switch {
	case j.Status != admin.JobPending:
		return time.Time{}
	case !j.NextRetryAt.IsZero():
		return j.NextRetryAt
	}
	return j.RunAt
}

func jobID(text string) (int64, error) { return parseID(text, "a job", "jobs list") }
