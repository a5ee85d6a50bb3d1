package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

var jobsPause = changeCommand{
	about: about{
		use:     "pause TAG",
		short:   "Hand out no jobs with a tag until it is resumed",
		long:    "Hand out no jobs with a tag until it is resumed. Jobs that workers have continue.",
		example: "  posthorn jobs pause mail",
	},
	do: withSentence("tag %s is paused", (*admin.Admin).PauseJobTag),
}

var jobsResume = changeCommand{
	about: about{
		use:     "resume TAG",
		short:   "Hand out jobs with a paused tag again",
		example: "  posthorn jobs resume mail",
	},
	do: func(ctx context.Context, adm *admin.Admin, args []string) (result, error) {
		wasPaused, err := adm.ResumeJobTag(ctx, args[0])
		sentence := fmt.Sprintf("tag %s is resumed", args[0])
		if !wasPaused {
			sentence = fmt.Sprintf("tag %s was not paused", args[0])
		}
		return result{sentence: sentence}, err
	},
}

func newJobsLimit(a *app) *cobra.Command {
	var l admin.JobLimit
	cmd := changeCommand{
		about: about{
			use:   "limit TAG",
			short: "Set how many jobs with a tag may run",
			long: `Set how many jobs with a tag may run at once, and how many may start in a
period, over all workers. A flag that is left out removes that limit: without any
flag the tag has no limits. Jobs that are held back keep their place.`,
			example: `  posthorn jobs limit mail --max-running 5
  posthorn jobs limit mail --max-started 100 --per 1m
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
			return result{sentence: fmt.Sprintf("tag %s: %s", args[0], limitText(l))}, adm.SetJobLimit(ctx, args[0], l)
		},
	}.build(a)
	flags := cmd.Flags()
	numberVar(flags, &l.MaxRunning, "max-running", 0, 0, mostInSQL, "how many at once")
	numberVar(flags, &l.MaxStarted, "max-started", 0, 0, mostInSQL, "how many in a period")
	flags.DurationVar(&l.Period, "per", 0, "the period")
	cmd.MarkFlagsRequiredTogether("max-started", "per")
	return cmd
}

func limitText(l admin.JobLimit) string {
	var limits []string
	if l.MaxRunning != 0 {
		limits = append(limits, fmt.Sprintf("%d at once", max(l.MaxRunning, 0)))
	}
	if l.MaxStarted != 0 {
		limits = append(limits, fmt.Sprintf("%d per %v", max(l.MaxStarted, 0), l.Period))
	}
	return cmp.Or(strings.Join(limits, ", "), "no limit")
}

var jobsLimits = listCommand[admin.JobLimitStatus]{
	about: about{
		use:     "limits",
		short:   "List tags that are paused or have limits",
		example: "  posthorn jobs limits --json",
	},
	list: (*admin.Admin).JobLimits,
	columns: columns[admin.JobLimitStatus]{"tag|limit|running|started|held back|paused", func(l admin.JobLimitStatus) []any {
		return []any{l.Tag, limitText(l.Limit()), l.Running, l.Started, l.HeldBack, l.PausedAt}
	}},
}
