package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newGroups(a *app) *cobra.Command {
	return parent(about{
		use:   "groups",
		short: "Show and manage groups, the positions in the log",
		long: `A group is a named position in the log, shared by all processes that use the
name. Each event is handled once per group.`,
	},
		groupsList.build(a),
		groupsShow.build(a),
		newGroupsDefine(a),
		newGroupsSeek(a),
		groupsPause.build(a),
		groupsResume.build(a),
		groupsDelete.build(a),
		newGroupsSubscribe(a),
		groupsUnsubscribe.build(a),
	)
}

var groupsList = listCommand[admin.GroupStatus]{
	about: about{
		use:   "list",
		short: "List groups and their positions",
		long: `List the groups of the namespace and their positions.

LAG is the number of events that a group has not been handed yet, an estimate
beyond 10,000, and BEHIND the age of the oldest of them.`,
		example: "  posthorn groups list --namespace shop --json",
	},
	list: (*admin.Admin).Groups,
	columns: columns[admin.GroupStatus]{"group|order|state|lag|behind|leases|retries|dead letters", func(g admin.GroupStatus) []any {
		return []any{g.Group, g.Order, groupState(g), g.LagEvents, roughSeconds(g.LagSeconds), g.Leases, g.Retries, g.DeadLetters}
	}},
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

var groupsPause = changeCommand{
	about: about{
		use:   "pause NAME",
		short: "Hand out no events of a group until it is resumed",
		long: `Hand out no events of a group until it is resumed. Workers finish the events that
they have, and retention keeps the events that the group has not read.`,
		example: "  posthorn groups pause billing",
	},
	do: withSentence("group %s is paused", (*admin.Admin).PauseGroup),
}

var groupsResume = changeCommand{
	about: about{
		use:     "resume NAME",
		short:   "Resume a paused group at its position",
		example: "  posthorn groups resume billing",
	},
	do: withSentence("group %s is resumed", (*admin.Admin).ResumeGroup),
}

var groupsDelete = changeCommand{
	about: about{
		use:   "delete NAME",
		short: "Delete a group with its position, retries and dead letters",
		long: `Delete a group with its position in the log, its leases, retries and dead letters.
The events stay in the log, for other groups.`,
		example: "  posthorn groups delete billing --yes",
	},
	json: true,
	ask: func(ctx context.Context, adm *admin.Admin, args []string) (string, error) {
		s, err := adm.Group(ctx, args[0])
		return fmt.Sprintf("delete group %s with %d retries and %d dead letters", s.Group, s.Retries, s.DeadLetters), err
	},
	do: func(ctx context.Context, adm *admin.Admin, args []string) (result, error) {
		d, err := adm.DeleteGroup(ctx, args[0])
		return result{fmt.Sprintf("deleted group %s with %d leases, %d retries and %d dead letters", args[0], d.Leases, d.Retries, d.DeadLetters), d}, err
	},
}
