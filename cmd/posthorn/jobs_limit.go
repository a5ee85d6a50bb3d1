package main

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

var jobsPause = doing{
	about: about{
		use:     "pause TAG",
		short:   "Hand out no jobs with a tag until it is resumed",
		long:    "Hand out no jobs with a tag until it is resumed. Those that workers have go on.",
		example: "  posthorn jobs pause mail",
	},
	do: done("tag %s is paused", (*admin.Admin).PauseJobTag),
}

var jobsResume = doing{
	about: about{
		use:     "resume TAG",
		short:   "Hand out jobs with a paused tag again",
		example: "  posthorn jobs resume mail",
	},
	do: func(ctx context.Context, adm *admin.Admin, args []string) (outcome, error) {
		was, err := adm.ResumeJobTag(ctx, args[0])
		sentence := fmt.Sprintf("tag %s is resumed", args[0])
		if !was {
			sentence = fmt.Sprintf("tag %s was not paused", args[0])
		}
		return outcome{sentence: sentence}, err
	},
}

func newJobsLimit(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "limit TAG",
		Short: "Set how many jobs with a tag may run",
		Long: `Set how many jobs with a tag may run at once, and how many may start in a
period, over all workers. What is left out is not limited: without any flag the
limits of the tag are removed. Jobs that are held back keep their place.`,
		Example: `  posthorn jobs limit mail --max-running 5
  posthorn jobs limit mail --max-started 100 --per 1m
  posthorn jobs limit mail`,
		Args: cobra.ExactArgs(1),
	}
	flags := cmd.Flags()
	var running, started int
	numberVar(flags, &running, "max-running", 0, 0, mostInSQL, "how many at once")
	numberVar(flags, &started, "max-started", 0, 0, mostInSQL, "how many in a period")
	per := flags.Duration("per", 0, "the period")
	cmd.MarkFlagsRequiredTogether("max-started", "per")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		l := admin.JobLimit{MaxRunning: running, MaxStarted: started, Period: *per}
		if flags.Changed("max-running") && running == 0 {
			l.MaxRunning = -1
		}
		if flags.Changed("max-started") && started == 0 {
			l.MaxStarted = -1
		}
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			if err := adm.SetJobLimit(cmd.Context(), args[0], l); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "tag %s: %s\n", args[0], limitText(l))
			return err
		})
	}
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

var jobsLimits = listing[admin.JobLimitStatus]{
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
