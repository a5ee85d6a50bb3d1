package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newJobsRetry(a *app) *cobra.Command {
	return a.onJobs(about{
		use:   "retry ID…",
		short: "Start jobs again that have failed, or that a worker has",
		long: `Start jobs again: jobs that have failed for good, with all their retries, jobs that
wait for their next attempt, or jobs that a worker has; that worker loses the job.`,
		example: "  posthorn jobs retry 7 8 --reason 'mail server is back'",
	}, (*admin.Admin).ResetJob, "is pending again")
}

func newJobsCancel(a *app) *cobra.Command {
	return a.onJobs(about{
		use:     "cancel ID…",
		short:   "End jobs that are not finished",
		long:    "End jobs that are not finished. A worker that has one of them loses it.",
		example: "  posthorn jobs cancel 7 --reason 'order was withdrawn'",
	}, (*admin.Admin).CancelJob, "is cancelled")
}

// onJobs makes a command that does something to jobs, one after the other.
func (a *app) onJobs(d about, do func(adm *admin.Admin, ctx context.Context, id int64, reason string) error, done string) *cobra.Command {
	cmd := d.command()
	reason := cmd.Flags().String("reason", "", "the reason, for the log of the job")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ids := make([]int64, len(args))
		for i, arg := range args {
			var err error
			if ids[i], err = jobID(arg); err != nil {
				return err
			}
		}
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			for _, id := range ids {
				if err := do(adm, cmd.Context(), id, *reason); err != nil {
					return err
				}
				if err := printLine(cmd, "job %d %s", id, done); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return cmd
}
