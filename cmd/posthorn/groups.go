package main

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func newGroups(a *app) *cobra.Command {
	return parent(about{
		use:   "groups",
		short: "Show and manage groups, the positions in the log",
		long: `A group is a named position in the log, shared by all processes that use the
name. Each event is handled once per group.`,
	},
		list(a, op.ListGroups, "LAG is the number of events, and BEHIND the age of the oldest of them.", groupColumns),
		show(a, op.GetGroup, groupFields, func(w io.Writer, d op.GroupDetails) error { return subscriptionColumns.printBelow(w, d.Subscriptions) }),
		newGroupsDefine(a),
		newGroupsPreview(a),
		newGroupsSeek(a),
		change(a, op.PauseGroup),
		change(a, op.ResumeGroup),
		change(a, op.DeleteGroup),
		newGroupsSubscribe(a),
		change(a, op.DeleteSubscription),
	)
}

var groupColumns = columns[admin.GroupStatus]{"group|order|state|lag|behind|leases|retries|dead letters", func(g admin.GroupStatus) []any {
	return []any{g.Group, g.Order, groupState(g), g.LagEvents, roughSeconds(g.LagSeconds), g.Leases, g.Retries, g.DeadLetters}
}}

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
