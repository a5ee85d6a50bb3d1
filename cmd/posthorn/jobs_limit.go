package main

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newJobsPause(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "pause TAG",
		Short:   "Hand out no jobs with a tag until it is resumed",
		Long:    "Hand out no jobs with a tag until it is resumed. Those that workers have go on.",
		Example: "  posthorn jobs pause mail",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
				if err := adm.PauseJobTag(cmd.Context(), args[0]); err != nil {
					return err
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "tag %s is paused\n", args[0])
				return err
			})
		},
	}
}

func newJobsResume(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "resume TAG",
		Short:   "Hand out jobs with a paused tag again",
		Example: "  posthorn jobs resume mail",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
				was, err := adm.ResumeJobTag(cmd.Context(), args[0])
				if err != nil {
					return err
				}
				done := "is resumed"
				if !was {
					done = "was not paused"
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "tag %s %s\n", args[0], done)
				return err
			})
		},
	}
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

func newJobsLimits(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "limits",
		Short:   "List tags that are paused or have limits",
		Example: "  posthorn jobs limits --json",
		Args:    cobra.NoArgs,
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			limits, err := adm.JobLimits(cmd.Context())
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), append([]admin.JobLimitStatus{}, limits...))
			}
			t := newTable(cmd.OutOrStdout(), "tag", "limit", "running", "started", "held back", "paused")
			for _, l := range limits {
				t.row(l.Tag, limitText(l.Limit()), l.Running, l.Started, l.HeldBack, l.PausedAt)
			}
			return t.flush()
		})
	}
	return cmd
}
