package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newJobsChange(a *app) *cobra.Command {
	var id int64
	var change admin.JobChange
	var priority int
	var newPayload, runAt string
	cmd := changeCommand{
		about: about{
			use:   "change ID",
			short: "Change a pending job",
			long: `Change the payload, the priority or the due time of a job that no worker has
taken yet. Flags that are left out change nothing.`,
			example: `  posthorn jobs change 7 --priority 10
  posthorn jobs change 7 --run-at 2h --payload '{"user": 8}'`,
		},
		prepare: func(cmd *cobra.Command, args []string) (err error) {
			if id, err = jobID(args[0]); err != nil {
				return err
			}
			if cmd.Flags().Changed("priority") {
				change.Priority = &priority
			}
			change.Payload, err = document("payload", []byte(newPayload))
			return err
		},
		do: func(ctx context.Context, adm *admin.Admin, _ []string) (_ result, err error) {
			if change.RunAt, err = futureFlag(ctx, adm, runAt); err != nil {
				return result{}, err
			}
			return result{sentence: fmt.Sprintf("job %d is changed", id)}, adm.ChangeJob(ctx, id, change)
		},
	}.build(a)
	flags := cmd.Flags()
	flags.StringVar(&newPayload, "payload", "", "the new payload, as JSON")
	numberVar(flags, &priority, "priority", 0, -mostInSQL, mostInSQL, "the new priority; higher goes first")
	flags.StringVar(&runAt, "run-at", "", "the new due time: a time, or a duration from now")
	cmd.MarkFlagsOneRequired("payload", "priority", "run-at")
	return cmd
}

var jobsDelete = changeCommand{
	about: about{
		use:     "delete ID",
		short:   "Delete a pending job",
		long:    "Delete a job that no worker has taken yet. To keep a record of it, cancel it instead.",
		example: "  posthorn jobs delete 7",
	},
	ask: func(_ context.Context, _ *admin.Admin, args []string) (string, error) {
		return "delete job " + args[0], nil
	},
	do: func(ctx context.Context, adm *admin.Admin, args []string) (result, error) {
		id, err := jobID(args[0])
		if err != nil {
			return result{}, err
		}
		return result{sentence: fmt.Sprintf("job %d is deleted", id)}, adm.DeleteJob(ctx, id)
	},
}
