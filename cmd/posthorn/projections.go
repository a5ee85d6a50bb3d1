package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newProjections(a *app) *cobra.Command {
	return parent(about{
		use:   "projections",
		short: "Show and rebuild projections, the tables that follow the log",
		long: `A projection is a table that follows the log: a program applies the events to it,
in the transaction that moves its position.`,
	}, projectionsList.build(a), newProjectionsRebuild(a), projectionsAbandon.build(a))
}

var projectionsList = listCommand[admin.ProjectionStatus]{
	about: about{
		use:   "list",
		short: "List projections and their positions",
		long: `List the projections of the namespace and their positions.

LAG is the number of events that a projection has not read yet, an estimate beyond
10,000, and BEHIND the age of the first of them. A projection stands still when it
cannot apply an event; ERROR has the reason. It retries, and skips nothing.`,
		example: "  posthorn projections list --namespace shop --json",
	},
	list: (*admin.Admin).Projections,
	columns: columns[admin.ProjectionStatus]{"projection|state|position|lag|behind|node|error", func(p admin.ProjectionStatus) []any {
		return []any{p.Projection, projectionState(p), p.Position, p.LagEvents, roughSeconds(p.LagSeconds), p.Node, p.Error}
	}},
}

func projectionState(p admin.ProjectionStatus) string {
	switch {
	case p.Paused:
		return "paused"
	case p.Failures > 0:
		return fmt.Sprintf("stands still at %d", p.FailedEvent)
	case p.Rebuilding && p.Replaces != "":
		return fmt.Sprintf("building, %d%%", percent(p))
	case p.Rebuilding:
		return fmt.Sprintf("rebuilding, %d%%", percent(p))
	case p.LagEvents == 0:
		return "up to date"
	default:
		return "behind"
	}
}

func percent(p admin.ProjectionStatus) int64 { return p.RebuildDone * 100 / max(p.RebuildTotal, 1) }

var projectionsAbandon = changeCommand{
	about: about{
		use:   "abandon NAME",
		short: "Give up the replacement of a projection",
		long: `Give up the replacement that a program has begun to build for a projection. The
projection stays as it is, and so do the tables of the replacement. From then on
retention no longer keeps the log for the replacement.`,
		example: "  posthorn projections abandon totals --yes",
	},
	ask: func(_ context.Context, _ *admin.Admin, args []string) (string, error) {
		return "give up the replacement of projection " + args[0], nil
	},
	do: withSentence("the replacement of projection %s is given up", (*admin.Admin).AbandonReplacement),
}
