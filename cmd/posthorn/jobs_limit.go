package main

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/internal/pg"
)

func newJobsPause(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "pause TAG",
		Short:   "Hand out no jobs with a tag until it is resumed",
		Long:    "Hand out no jobs with a tag until it is resumed. Those that workers have go on.",
		Example: "  posthorn jobs pause mail",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withDatabase(cmd.Context(), func(conn *pgx.Conn) error {
				if err := pg.PauseJobTag(cmd.Context(), conn, a.namespace, args[0]); err != nil {
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
			return a.withDatabase(cmd.Context(), func(conn *pgx.Conn) error {
				was, err := pg.ResumeJobTag(cmd.Context(), conn, a.namespace, args[0])
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
		l := pg.JobLimit{Period: *per}
		if flags.Changed("max-running") {
			l.MaxRunning = &running
		}
		if flags.Changed("max-started") {
			l.MaxStarted = &started
		}
		return a.withDatabase(cmd.Context(), func(conn *pgx.Conn) error {
			if err := pg.SetJobLimit(cmd.Context(), conn, a.namespace, args[0], l); err != nil {
				return err
			}
			_, err := fmt.Fprintf(cmd.OutOrStdout(), "tag %s: %s\n", args[0], limitText(l))
			return err
		})
	}
	return cmd
}

func limitText(l pg.JobLimit) string {
	text := "no limit"
	if l.MaxRunning != nil {
		text = fmt.Sprintf("%d at once", *l.MaxRunning)
	}
	if l.MaxStarted != nil {
		started := fmt.Sprintf("%d per %v", *l.MaxStarted, l.Period)
		if l.MaxRunning != nil {
			return text + ", " + started
		}
		return started
	}
	return text
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
		return a.withDatabase(cmd.Context(), func(conn *pgx.Conn) error {
			limits, err := pg.ListJobLimits(cmd.Context(), conn, a.namespace)
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), append([]pg.JobLimitStatus{}, limits...))
			}
			t := newTable(cmd.OutOrStdout(), "tag", "limit", "running", "started", "held back", "paused")
			for _, l := range limits {
				limit := pg.JobLimit{MaxRunning: l.MaxRunning, MaxStarted: l.MaxStarted}
				if l.PeriodSeconds != nil {
					limit.Period = time.Duration(*l.PeriodSeconds * float64(time.Second))
				}
				t.row(l.Tag, limitText(limit), l.Running, l.Started, l.HeldBack, l.PausedAt)
			}
			return t.flush()
		})
	}
	return cmd
}
