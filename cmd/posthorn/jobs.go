package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newJobs(a *app) *cobra.Command {
	return holding(about{
		use:   "jobs",
		short: "Enqueue, see and steer jobs",
		long: `A job is work for exactly one worker, found by tags, with a status and a
history of its own.`,
	},
		newJobsList(a),
		jobsShow.of(a),
		newJobsEnqueue(a),
		newJobsRetry(a),
		newJobsCancel(a),
		newJobsChange(a),
		jobsDelete.of(a),
		jobsPause.of(a),
		jobsResume.of(a),
		newJobsLimit(a),
		jobsLimits.of(a),
	)
}

// watchEvery is how often --watch looks again.
const watchEvery = time.Second

// mostJobs is one less than the database lists at once, to see whether there are more.
const mostJobs = 9_999

func newJobsList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List jobs, the newest first",
		Long: `List the jobs of the namespace, the newest first.

A job is stalled when its worker has said nothing of it for 30 seconds.`,
		Example: `  posthorn jobs list --status failed --tag mail
  posthorn jobs list --stalled --watch`,
		Args: cobra.NoArgs,
	}
	f := admin.JobFilter{NewestFirst: true}
	flags := cmd.Flags()
	flags.StringVar(&f.Status, "status", "", "only pending, processing, completed, failed or cancelled ones")
	flags.StringArrayVar(&f.Tags, "tag", nil, "only those with this tag; repeated: with any of them")
	stalled := flags.Bool("stalled", false, "only those whose workers have gone silent")
	limitVar(flags, &f.Limit, 20, mostJobs, "how many at most")
	watch := flags.Bool("watch", false, "list again every second, until interrupted")
	asJSON := jsonFlag(cmd)
	cmd.MarkFlagsMutuallyExclusive("watch", "json")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f.Status = strings.ToUpper(f.Status)
		if *stalled {
			f.Stalled = stalled
		}
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			if *watch {
				return a.watchJobs(cmd.Context(), adm, cmd.OutOrStdout(), f)
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

// watchJobs prints the list again and again, each over the last.
func (a *app) watchJobs(ctx context.Context, adm *admin.Admin, w io.Writer, f admin.JobFilter) error {
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
		case <-time.After(watchEvery):
		}
	}
}

var jobColumns = columns[admin.JobStatus]{"id|status|tags|attempt|due|worker|title", func(j admin.JobStatus) []any {
	return []any{j.ID, jobState(j), strings.Join(j.Tags, ","), j.Attempt, jobDue(j), j.Worker, j.Title}
}}

func jobState(j admin.JobStatus) string {
	state := strings.ToLower(j.Status)
	if j.Stalled {
		state += ", stalled"
	}
	return state
}

// jobDue is when a job that waits is due; others are not.
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
	id, err := strconv.ParseInt(text, 10, 64)
	if err != nil || id <= 0 {
		return 0, usageError{fmt.Errorf("%q is no id of a job", text), "run: posthorn jobs list"}
	}
	return id, nil
}
