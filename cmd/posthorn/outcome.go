package main

import (
	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

const outcomeLong = `Show the outcome of one event in each group of its namespace.

STATE is that of the group:
  PENDING                not handed out yet, given back, or owed to
                         a webhook that is disabled or catches up
  PROCESSING             a worker works on it
  RETRYING               it failed, and is handed out again when it is due
  COMPLETED              handled, without failures
  COMPLETED_WITH_ERRORS  handled, except by the subscriptions that are listed
  DEAD                   it failed for good
  PASSED_OVER            never handed out: the group started after it, or was
                         moved past it
  DELAYED                it enters the log when it is due, under another id

A subscription has a line of its own only if it did not handle the event well.`

func newOutcome(a *app) *cobra.Command {
	cmd := about{"outcome EVENT", "Show the outcome of one event in each group", outcomeLong, `  posthorn outcome 4711
  posthorn outcome 4711 --json`}.command()
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		event, err := parseID(args[0], "an event", "tail")
		if err != nil {
			return err
		}
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			outcomes, err := adm.Outcomes(cmd.Context(), event)
			if err != nil {
				return err
			}
			return outcomeColumns.printOrJSON(cmd.OutOrStdout(), outcomes, *asJSON)
		})
	}
	return cmd
}

var outcomeColumns = columns[admin.Outcome]{"group|state|subscription|attempts|worker|at|due|error", func(o admin.Outcome) []any {
	return []any{o.Group, o.State, o.Subscription, numberOf(o.Attempts), o.Node, o.At, o.DueAt, shorten(failureOf(o), 60)}
}}

func failureOf(o admin.Outcome) string {
	switch {
	case o.Error == "":
		return o.Reason
	case o.Reason == "":
		return o.Error
	default:
		return o.Reason + ": " + o.Error
	}
}
