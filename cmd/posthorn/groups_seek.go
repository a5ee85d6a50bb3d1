package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

const groupsSeekLong = `Move a group: it is handed every event published from then on, again if it had
them before. Whoever works for the group now loses the lease; events that have
failed stay owed to it.

` + timeHelp

func newGroupsSeek(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "seek NAME beginning|end|TIME",
		Short: "Move a group to a time, the beginning or the end",
		Long:  groupsSeekLong,
		Example: `  posthorn groups seek billing -1h
  posthorn groups seek billing 2026-01-31
  posthorn groups seek billing end`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx := cmd.Context()
			return a.withAdmin(ctx, func(adm *admin.Admin) error {
				to, err := parseMoment(ctx, adm, args[1])
				if err != nil {
					return err
				}
				if err := adm.Seek(ctx, args[0], to); err != nil {
					return err
				}
				where := args[1]
				if to.InfinityModifier == 0 {
					where = formatTime(to.Time)
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "group %s stands at %s\n", args[0], where)
				return err
			})
		},
	}
}
