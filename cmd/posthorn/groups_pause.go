package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newGroupsPause(a *app) *cobra.Command {
	cmd := a.onGroup((*admin.Admin).PauseGroup, "is paused")
	cmd.Use = "pause NAME"
	cmd.Short = "Let a group claim nothing until it is resumed"
	cmd.Long = cmd.Short + `. What is being worked on goes on, and
retention keeps what the group has not read.`
	cmd.Example = "  posthorn groups pause billing"
	return cmd
}

func newGroupsResume(a *app) *cobra.Command {
	cmd := a.onGroup((*admin.Admin).ResumeGroup, "is resumed")
	cmd.Use = "resume NAME"
	cmd.Short = "Let a paused group go on from where it stood"
	cmd.Example = "  posthorn groups resume billing"
	return cmd
}

// onGroup is a command that does one thing to a group, and says so.
func (a *app) onGroup(do func(adm *admin.Admin, ctx context.Context, group string) error, done string) *cobra.Command {
	return &cobra.Command{
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
				if err := do(adm, cmd.Context(), args[0]); err != nil {
					return err
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "group %s %s\n", args[0], done)
				return err
			})
		},
	}
}
