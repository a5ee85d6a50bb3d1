package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func newJobsLimit(a *app) *cobra.Command {
	var l admin.JobLimit
	cmd := changeCommand{
		about: about{
			use:   "limit TAG",
			short: op.SetJobLimit.Does,
			long: `Set how many jobs with a tag may run at once, and how many may start in a
period, over all workers. A flag that is left out removes that limit: without any
flag the tag has no limits. Jobs that are held back keep their place.

A tag that ends with * is a pattern: the limit holds for each tag that begins so, by
itself. The limit of the tag itself counts instead, or else that of the longest
pattern.`,
			example: `  posthorn jobs limit mail --max-running 5
  posthorn jobs limit mail --max-started 100 --per 1m
  posthorn jobs limit 'tenant:*' --max-running 4
  posthorn jobs limit mail`,
		},
		prepare: func(cmd *cobra.Command, _ []string) error {
			for name, limit := range map[string]*int{"max-running": &l.MaxRunning, "max-started": &l.MaxStarted} {
				if *limit == 0 && cmd.Flags().Changed(name) {
					*limit = -1 // none at all; 0 would be no limit
				}
			}
			return nil
		},
		do: func(ctx context.Context, adm *admin.Admin, args []string) (result, error) {
			return result{sentence: fmt.Sprintf("tag %s: %s", args[0], l)}, adm.SetJobLimit(ctx, args[0], l)
		},
	}.build(a)
	flags := cmd.Flags()
	numberVar(flags, &l.MaxRunning, "max-running", 0, 0, mostInSQL, "how many at once")
	numberVar(flags, &l.MaxStarted, "max-started", 0, 0, mostInSQL, "how many in a period")
	flags.DurationVar(&l.Period, "per", 0, "the period")
	cmd.MarkFlagsRequiredTogether("max-started", "per")
	return cmd
}

var jobLimitColumns = columns[admin.JobLimitStatus]{"tag|limit|running|started|due|paused", func(l admin.JobLimitStatus) []any {
	return []any{l.Tag, l.Limit(), l.Running, l.Started, l.HeldBack, l.PausedAt}
}}

func newJobsTags(a *app) *cobra.Command {
	in := &op.ListJobTagsInput{}
	cmd := listCommand[admin.JobTag]{
		about: aboutOf(op.ListJobTags, ""), columns: jobTagColumns,
		list: func(adm *admin.Admin, ctx context.Context) ([]admin.JobTag, error) {
			return op.ListJobTags.Call(ctx, adm, in)
		},
	}.build(a)
	addFlags(cmd.Flags(), in)
	return cmd
}

var jobTagColumns = columns[admin.JobTag]{"tag|verdict|waiting|since|running|share|why", func(t admin.JobTag) []any {
	running := fmt.Sprint(t.Running)
	if t.MaxRunning != nil {
		running = fmt.Sprintf("%d of %d", t.Running, *t.MaxRunning)
	}
	return []any{t.Tag, t.Verdict, t.Waiting, t.WaitingSince, running, fmt.Sprintf("%.0f%%", 100*t.Share), t.Why}
}}
