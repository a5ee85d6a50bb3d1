package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newGroups(a *app) *cobra.Command {
	return holding(about{
		use:   "groups",
		short: "See and steer those who read the log",
		long: `A group is a named position in the log, shared by all processes that use the
name. Each event is handled once per group.`,
	},
		groupsList.of(a),
		groupsShow.of(a),
		newGroupsDefine(a),
		groupsSeek.of(a),
		groupsPause.of(a),
		groupsResume.of(a),
		groupsDelete.of(a),
		newGroupsSubscribe(a),
		groupsUnsubscribe.of(a),
	)
}

var groupsList = listing[admin.GroupStatus]{
	about: about{
		use:   "list",
		short: "List groups and how far they are",
		long: `List the groups of the namespace and how far they are.

LAG is how many events a group was not handed yet, an estimate beyond 10,000,
and BEHIND the age of the oldest of them.`,
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

var groupsPause = doing{
	about: about{
		use:   "pause NAME",
		short: "Let a group claim nothing until it is resumed",
		long: `Let a group claim nothing until it is resumed. What is being worked on goes on, and
retention keeps what the group has not read.`,
		example: "  posthorn groups pause billing",
	},
	do: done("group %s is paused", (*admin.Admin).PauseGroup),
}

var groupsResume = doing{
	about: about{
		use:     "resume NAME",
		short:   "Let a paused group go on from where it stood",
		example: "  posthorn groups resume billing",
	},
	do: done("group %s is resumed", (*admin.Admin).ResumeGroup),
}

var groupsDelete = doing{
	about: about{
		use:   "delete NAME",
		short: "Delete a group with its position, retries and dead letters",
		long: `Delete a group with all it holds: its position in the log, leases, retries and
dead letters. Events stay in the log, for other groups.`,
		example: "  posthorn groups delete billing --yes",
	},
	json: true,
	ask: func(ctx context.Context, adm *admin.Admin, args []string) (string, error) {
		s, err := adm.Group(ctx, args[0])
		return fmt.Sprintf("delete group %s with %d retries and %d dead letters", s.Group, s.Retries, s.DeadLetters), err
	},
	do: func(ctx context.Context, adm *admin.Admin, args []string) (outcome, error) {
		d, err := adm.DeleteGroup(ctx, args[0])
		return outcome{fmt.Sprintf("deleted group %s with %d leases, %d retries and %d dead letters", args[0], d.Leases, d.Retries, d.DeadLetters), d}, err
	},
}
