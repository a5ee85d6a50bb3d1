package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func newJobsStuck(a *app) *cobra.Command {
	in := &op.ListStuckJobsInput{}
	cmd := listCommand[admin.StuckJob]{
		about: aboutOf(op.ListStuckJobs, "FOR says how long the first job has been stuck, and JOBS how many are, for the same reason."), columns: stuckJobColumns,
		list: func(adm *admin.Admin, ctx context.Context) ([]admin.StuckJob, error) {
			return op.ListStuckJobs.Call(ctx, adm, in)
		},
	}.build(a)
	addFlags(cmd.Flags(), in)
	return cmd
}

var stuckJobColumns = columns[admin.StuckJob]{"for|jobs|id|title|trouble|why|what helps", func(j admin.StuckJob) []any {
	return []any{roughSeconds(j.Seconds), 1 + j.Others, j.ID, j.Title, j.Trouble, j.Why, j.Helps}
}}
