package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newProjections(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "projections",
		Short: "See and rebuild the tables that follow the log",
		Long: `A projection is a table that follows the log: what events mean is written there
in the transaction that moves its position. Programs define and keep them.`,
		Args: cobra.NoArgs,
		RunE: help,
	}
	cmd.AddCommand(
		newProjectionsList(a),
		newProjectionsRebuild(a),
		newProjectionsAbandon(a),
	)
	return cmd
}

func newProjectionsList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List projections and how far they are",
		Long: `List the projections of the namespace and how far they are.

LAG is how many events a projection has yet to look at, an estimate beyond
10,000, and BEHIND the age of the first of them. One that stands still cannot
apply an event; ERROR says why. It tries again and skips nothing.`,
		Example: "  posthorn projections list --namespace shop --json",
		Args:    cobra.NoArgs,
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			projections, err := adm.Projections(cmd.Context())
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), append([]admin.ProjectionStatus{}, projections...))
			}
			t := newTable(cmd.OutOrStdout(), "projection", "state", "position", "lag", "behind", "node", "error")
			for _, p := range projections {
				t.row(p.Projection, projectionState(p), p.Position, p.LagEvents, roughSeconds(p.LagSeconds), p.Node, p.Error)
			}
			return t.flush()
		})
	}
	return cmd
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
