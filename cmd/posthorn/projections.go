package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newProjections(a *app) *cobra.Command {
	return holding(about{
		use:   "projections",
		short: "See and rebuild the tables that follow the log",
		long: `A projection is a table that follows the log: what events mean is written there
in the transaction that moves its position. Programs define and keep them.`,
	}, projectionsList.of(a), newProjectionsRebuild(a), projectionsAbandon.of(a))
}

var projectionsList = listing[admin.ProjectionStatus]{
	about: about{
		use:   "list",
		short: "List projections and how far they are",
		long: `List the projections of the namespace and how far they are.

LAG is how many events a projection has yet to look at, an estimate beyond
10,000, and BEHIND the age of the first of them. One that stands still cannot
apply an event; ERROR says why. It tries again and skips nothing.`,
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

var projectionsAbandon = doing{
	about: about{
		use:   "abandon NAME",
		short: "Give up the replacement of a projection",
		long: `Give up what a program has begun to build in the place of a projection. The
projection stays as it is. The tables that were built stay behind; until this,
the log is kept for them.`,
		example: "  posthorn projections abandon totals --yes",
	},
	ask: func(_ context.Context, _ *admin.Admin, args []string) (string, error) {
		return "give up the replacement of projection " + args[0], nil
	},
	do: done("the replacement of projection %s is given up", (*admin.Admin).AbandonReplacement),
}
