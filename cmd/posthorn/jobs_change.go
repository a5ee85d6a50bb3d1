package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func newJobsChange(a *app) *cobra.Command {
	var id int64
	var change admin.JobChange
	var priority int
	var newPayload, runAt string
	cmd := changeCommand{
		about: aboutOf(op.ChangeJob, "RUN-AT is a time, or a duration from now."),
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
