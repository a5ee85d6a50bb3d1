package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func newJobsStuck(a *app) *cobra.Command {
	in := &op.ListStuckJobsInput{}
	cmd := listCommand[admin.StuckJob]{
		about: aboutOf(op.ListStuckJobs, "FOR says how long the job has been stuck, SINCE since when."), columns: stuckJobColumns,
		list: func(adm *admin.Admin, ctx context.Context) ([]admin.StuckJob, error) {
			return op.ListStuckJobs.Call(ctx, adm, in)
		},
	}.build(a)
	addFlags(cmd.Flags(), in)
	return cmd
}

var stuckJobColumns = columns[admin.StuckJob]{"for|since|trouble|id|others|title|why|tags|worker", func(j admin.StuckJob) []any {
	others := ""
	if j.Others > 0 {
		others = fmt.Sprintf("+%d", j.Others)
	}
	return []any{roughSeconds(j.Seconds), j.Since, j.Trouble, j.ID, others, j.Title, j.Why, strings.Join(j.Tags, ","), j.Worker}
}}
