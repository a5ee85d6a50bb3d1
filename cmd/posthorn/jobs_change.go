package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newJobsChange(a *app) *cobra.Command {
	cmd := about{
		use:   "change ID",
		short: "Change a pending job",
		long: `Change the payload, the priority or the due time of a job that no worker has
taken yet. Flags that are left out change nothing.`,
		example: `  posthorn jobs change 7 --priority 10
  posthorn jobs change 7 --run-at 2h --payload '{"user": 8}'`,
	}.command(cobra.ExactArgs(1))
	var priority int
	flags := cmd.Flags()
	newPayload := flags.String("payload", "", "the new payload, as JSON")
	numberVar(flags, &priority, "priority", 0, -mostInSQL, mostInSQL, "the new priority; higher goes first")
	runAt := flags.String("run-at", "", "the new due time: a time, or a duration from now")
	cmd.MarkFlagsOneRequired("payload", "priority", "run-at")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := jobID(args[0])
		if err != nil {
			return err
		}
		var change admin.JobChange
		if change.Payload, err = document("payload", []byte(*newPayload)); err != nil {
			return err
		}
		if flags.Changed("priority") {
			change.Priority = &priority
		}
		ctx := cmd.Context()
		return a.withAdmin(ctx, func(adm *admin.Admin) error {
			if *runAt != "" {
				now, err := adm.Now(ctx)
				if err != nil {
					return err
				}
				if change.RunAt, err = futureTime(*runAt, now); err != nil {
					return err
				}
			}
			if err := adm.ChangeJob(ctx, id, change); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "job %d is changed\n", id)
			return err
		})
	}
	return cmd
}

var jobsDelete = doing{
	about: about{
		use:     "delete ID",
		short:   "Delete a pending job",
		long:    "Delete a job that no worker has taken yet. To keep a record of it, cancel it instead.",
		example: "  posthorn jobs delete 7",
	},
	ask: func(_ context.Context, _ *admin.Admin, args []string) (string, error) {
		return "delete job " + args[0], nil
	},
	do: func(ctx context.Context, adm *admin.Admin, args []string) (outcome, error) {
		id, err := jobID(args[0])
		if err != nil {
			return outcome{}, err
		}
		return outcome{sentence: fmt.Sprintf("job %d is deleted", id)}, adm.DeleteJob(ctx, id)
	},
}
