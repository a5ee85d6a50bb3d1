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
		short: "Enqueue, show and manage jobs, and see which are stuck",
		long: `A job is work for exactly one worker, found by its tags, with a status and a
history.`,
	},
		newJobsList(a),
		newJobsStuck(a),
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
		newJobsTags(a),
	)
}

// watchPause is the pause between two lists of --watch.
const watchPause = time.Second

// mostJobs is one less than the database lists, since the command asks for one more.
const mostJobs = 9_999

// mostSearched is the number of jobs that one look of a search returns at most.
const mostSearched = 1000

func newJobsList(a *app) *cobra.Command {
	cmd := aboutOf(op.ListJobs, "The newest are first. A job is stalled when it has had no heartbeat of its worker for 30 seconds.").command()
	s := admin.JobSearch{JobFilter: admin.JobFilter{NewestFirst: true}}
	flags := cmd.Flags()
	addFlags(flags, &s)
	limitVar(flags, &s.Limit, 20, mostJobs, "list so many")
	watch := flags.Bool("watch", false, "list again every second, until interrupted")
	asJSON := jsonFlag(cmd)
	cmd.MarkFlagsMutuallyExclusive("watch", "json")
	for _, search := range []string{"title", "error", "payload", "from", "before", "ended-from"} { // it goes back from the newest by number
		cmd.MarkFlagsMutuallyExclusive(search, "stalled")
		cmd.MarkFlagsMutuallyExclusive(search, "offset")
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			if *watch {
				return watchJobs(cmd.Context(), adm, cmd.OutOrStdout(), s)
			}
			shown := s.Limit
			s.Limit++ // to see whether there are more
			jobs, err := jobsOf(cmd.Context(), adm, s)
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

// jobsOf returns the newest jobs of a search.
func jobsOf(ctx context.Context, adm *admin.Admin, s admin.JobSearch) (jobs []admin.JobStatus, err error) {
	if s.Title+s.Error+s.Payload == "" && s.From.IsZero() && s.Before.IsZero() && s.Ended.IsZero() {
		return adm.Jobs(ctx, s.JobFilter)
	}
	wanted := s.Limit
	for before := int64(0); ; {
		s.Limit = min(wanted-len(jobs), mostSearched)
		found, lookedTo, err := adm.SearchJobs(ctx, s, before)
		jobs = append(jobs, found...)
		if before = lookedTo; len(found) == s.Limit {
			before = found[len(found)-1].ID
		}
		if err != nil || len(jobs) == wanted || before == 0 {
			return jobs, err
		}
	}
}

// watchJobs prints the list again and again. On a terminal each list replaces the previous
// one.
func watchJobs(ctx context.Context, adm *admin.Admin, w io.Writer, s admin.JobSearch) error {
	clear := ""
	if isTerminal(terminalOf(w)) {
		clear = "\x1b[H\x1b[2J"
	}
	for {
		jobs, err := jobsOf(ctx, adm, s)
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

func jobID(text string) (int64, error) {
	return parseID(text, "a job", "jobs list --title TEXT, or jobs list --payload TEXT")
}
