package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newSchedulesPause(a *app) *cobra.Command {
	cmd := a.onSchedule((*admin.Admin).PauseSchedule, "is paused")
	cmd.Use = "pause NAME"
	cmd.Short = "Let a schedule publish nothing until it is resumed"
	cmd.Example = "  posthorn schedules pause invoices"
	return cmd
}

func newSchedulesResume(a *app) *cobra.Command {
	cmd := a.onSchedule((*admin.Admin).ResumeSchedule, "is resumed")
	cmd.Use = "resume NAME"
	cmd.Short = "Let a paused schedule go on with its next time"
	cmd.Long = cmd.Short + `. What it missed is
not made up for.`
	cmd.Example = "  posthorn schedules resume invoices"
	return cmd
}

// onSchedule is a command that does one thing to a schedule, and says so.
func (a *app) onSchedule(do func(adm *admin.Admin, ctx context.Context, name string) error, done string) *cobra.Command {
	return &cobra.Command{
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
				if err := do(adm, cmd.Context(), args[0]); err != nil {
					return err
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "schedule %s %s\n", args[0], done)
				return err
			})
		},
	}
}
