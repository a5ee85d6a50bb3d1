package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newJobsRetry(a *app) *cobra.Command {
	cmd := a.onJobs((*admin.Admin).ResetJob, "is pending again")
	cmd.Use = "retry ID…"
	cmd.Short = "Let jobs begin anew that have failed for good, or that a worker has"
	cmd.Long = `Let jobs begin anew: those that have failed for good, with their retries as at
first, or those that a worker has, which can say nothing more of them.`
	cmd.Example = "  posthorn jobs retry 7 8 --reason 'mail server is back'"
	return cmd
}

func newJobsCancel(a *app) *cobra.Command {
	cmd := a.onJobs((*admin.Admin).CancelJob, "is cancelled")
	cmd.Use = "cancel ID…"
	cmd.Short = "End jobs that are not finished"
	cmd.Long = cmd.Short + `. A worker that has one can say nothing
more of it.`
	cmd.Example = "  posthorn jobs cancel 7 --reason 'order was withdrawn'"
	return cmd
}

// onJobs is a command that does one thing to jobs, one after the other.
func (a *app) onJobs(do func(adm *admin.Admin, ctx context.Context, id int64, reason string) error, done string) *cobra.Command {
	cmd := &cobra.Command{Args: cobra.MinimumNArgs(1)}
	reason := cmd.Flags().String("reason", "", "why, for the log of the job")
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
				if _, err := fmt.Fprintf(cmd.OutOrStdout(), "job %d %s\n", id, done); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return cmd
}
