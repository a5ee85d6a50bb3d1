package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newGroups(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "groups",
		Short: "See and steer those who read the log",
		Long: `A group is a named position in the log, shared by all processes that use the
name. Each event is handled once per group.`,
		Args: cobra.NoArgs,
		RunE: help,
	}
	cmd.AddCommand(
		newGroupsList(a),
		newGroupsShow(a),
		newGroupsDefine(a),
		newGroupsSeek(a),
		newGroupsPause(a),
		newGroupsResume(a),
		newGroupsDelete(a),
		newGroupsSubscribe(a),
		newGroupsUnsubscribe(a),
	)
	return cmd
}

func newGroupsList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List groups and how far they are",
		Long: `List the groups of the namespace and how far they are.

LAG is how many events a group was not handed yet, an estimate beyond 10,000,
and BEHIND the age of the oldest of them.`,
		Example: "  posthorn groups list --namespace shop --json",
		Args:    cobra.NoArgs,
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			groups, err := adm.Groups(cmd.Context())
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), append([]admin.GroupStatus{}, groups...))
			}
			t := newTable(cmd.OutOrStdout(), "group", "order", "state", "lag", "behind", "leases", "retries", "dead letters")
			for _, g := range groups {
				t.row(g.Group, g.Order, groupState(g), g.LagEvents, roughSeconds(g.LagSeconds), g.Leases, g.Retries, g.DeadLetters)
			}
			return t.flush()
		})
	}
	return cmd
}

func groupState(g admin.GroupStatus) string {
	switch {
	case g.Paused:
		return "paused"
	case g.BlockedSlots > 0:
		return fmt.Sprintf("%d blocked", g.BlockedSlots)
	case g.LagEvents == 0:
		return "up to date"
	default:
		return "behind"
	}
}

// roughSeconds is a period for people: 1h4m0s, or nothing.
func roughSeconds(seconds float64) string {
	if seconds == 0 {
		return ""
	}
	d := time.Duration(seconds * float64(time.Second))
	if d < time.Second {
		return d.Round(time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}
