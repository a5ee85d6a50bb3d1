package main

import (
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

const outcomeLong = `Show what has become of one event in each group of its namespace.

STATE is that of the group:
  PENDING                not handed out yet, or given back
  PROCESSING             a node works on it
  RETRYING               it failed, and is handed out again when it is due
  COMPLETED              done, nothing has failed
  COMPLETED_WITH_ERRORS  done, but for the subscriptions that are listed
  DEAD                   it failed for good
  PASSED_OVER            never handed out: the group started behind it, or was
                         moved over it
  DELAYED                it enters the log when it is due, under another id

A subscription has a line of its own only if something is wrong with it.`

func newOutcome(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "outcome EVENT",
		Short: "Show what has become of one event in each group",
		Long:  outcomeLong,
		Example: `  posthorn outcome 4711
  posthorn outcome 4711 --json`,
		Args: cobra.ExactArgs(1),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		event, err := strconv.ParseInt(args[0], 10, 64)
		if err != nil || event <= 0 {
			return usageError{fmt.Errorf("%q is no id of an event", args[0]), "publish and tail print the ids of events"}
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

var outcomeColumns = columns[admin.Outcome]{"group|state|subscription|attempts|node|at|due|error", func(o admin.Outcome) []any {
	return []any{o.Group, o.State, o.Subscription, counted(o.Attempts), o.Node, o.At, o.DueAt, shorten(whatFailed(o), 60)}
}}

// counted leaves out a count of none: there was none, or it is not kept.
func counted(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func whatFailed(o admin.Outcome) string {
	switch {
	case o.Error == "":
		return o.Reason
	case o.Reason == "":
		return o.Error
	default:
		return o.Reason + ": " + o.Error
	}
}
