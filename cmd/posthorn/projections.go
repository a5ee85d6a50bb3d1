package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func newProjections(a *app) *cobra.Command {
	return parent(about{
		use:   "projections",
		short: "Show and rebuild projections, the tables that follow the log",
		long: `A projection is a table that follows the log: a program applies the events to it,
in the transaction that moves its position.`,
	},
		list(a, op.ListProjections, projectionsHelp, projectionColumns),
		show(a, op.GetProjection, projectionFields, nil),
		newProjectionsRebuild(a),
		change(a, op.AbandonReplacement),
	)
}

const projectionsHelp = `LAG is the number of events that a projection has not read yet, an estimate beyond
10,000, and BEHIND the age of the first of them. A projection stands still when it
cannot apply an event; ERROR has the reason. It retries, and skips nothing.`

var projectionColumns = columns[admin.ProjectionStatus]{"projection|state|position|lag|behind|worker|error", func(p admin.ProjectionStatus) []any {
	return []any{p.Projection, projectionState(p), p.Position, p.LagEvents, roughSeconds(p.LagSeconds), p.Node, p.Error}
}}

func projectionFields(field fields, p admin.ProjectionStatus) {
	field("projection", p.Projection)
	field("namespace", p.Namespace)
	field("replaces", p.Replaces)
	field("state", projectionState(p))
	field("position", p.Position)
	field("lag", p.LagEvents)
	field("behind", roughSeconds(p.LagSeconds))
	field("oldest pending", p.OldestPending)
	field("worker", p.Node)
	field("failures", p.Failures)
	field("failed event", numberOf(p.FailedEvent))
	field("error", p.Error)
	field("failed at", p.FailedAt)
	field("tried again at", p.RetryAt)
	field("rebuild began", p.RebuildBeganAt)
	field("rebuilt", p.RebuiltAt)
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
