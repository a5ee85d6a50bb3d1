package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

// groupDetails is what is printed about one group.
type groupDetails struct {
	admin.GroupStatus
	Policy        admin.GroupPolicy          `json:"policy"`
	Subscriptions []admin.SubscriptionStatus `json:"subscriptions"`
}

func newGroupsShow(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show NAME",
		Short:   "Show one group: where it stands, its policy and its subscriptions",
		Example: "  posthorn groups show billing",
		Args:    cobra.ExactArgs(1),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			var d groupDetails
			var err error
			if d.GroupStatus, err = adm.Group(cmd.Context(), args[0]); err != nil {
				return err
			}
			if d.Policy, err = adm.GroupPolicy(cmd.Context(), args[0]); err != nil {
				return err
			}
			if d.Subscriptions, err = adm.Subscriptions(cmd.Context(), args[0]); err != nil {
				return err
			}
			if *asJSON {
				d.Subscriptions = append([]admin.SubscriptionStatus{}, d.Subscriptions...)
				return printJSON(cmd.OutOrStdout(), d)
			}
			if err := printGroup(cmd.OutOrStdout(), d); err != nil {
				return err
			}
			if len(d.Subscriptions) == 0 {
				return nil
			}
			return printSubscriptions(cmd.OutOrStdout(), d.Subscriptions)
		})
	}
	return cmd
}

func printGroup(w io.Writer, d groupDetails) error {
	f := newFields(w)
	f.field("group", d.Group)
	f.field("namespace", d.Namespace)
	f.field("state", groupState(d.GroupStatus))
	f.field("position", d.Position)
	f.field("lag", d.LagEvents)
	f.field("behind", roughSeconds(d.LagSeconds))
	f.field("oldest pending", d.OldestPending)
	f.field("leases", fmt.Sprintf("%d, %d of them expired", d.Leases, d.ExpiredLeases))
	f.field("retries", d.Retries)
	f.field("blocked slots", d.BlockedSlots)
	f.field("dead letters", d.DeadLetters)
	f.field("held back by", heldBackBy(d.GroupStatus))
	f.field("order", d.Order)
	f.field("slots", d.Policy.Slots)
	f.field("attempts", attempts(d.Policy))
	f.field("delays", delays(d.Policy))
	f.field("on failure", d.Policy.OnFailure)
	f.field("read ahead", d.Policy.ReadAhead)
	f.field("created", d.Policy.CreatedAt)
	return f.flush()
}

func heldBackBy(g admin.GroupStatus) string {
	switch {
	case g.HeldForSeconds == 0:
		return ""
	case g.HeldByPID == 0:
		return fmt.Sprintf("%s, for %s", g.HeldByApplication, roughSeconds(g.HeldForSeconds))
	default:
		return fmt.Sprintf("a transaction of %q, pid %d, for %s", g.HeldByApplication, g.HeldByPID, roughSeconds(g.HeldForSeconds))
	}
}

func attempts(p admin.GroupPolicy) string {
	if p.Attempts == 0 {
		return "no limit"
	}
	return fmt.Sprint(p.Attempts)
}

func delays(p admin.GroupPolicy) string {
	if p.Delays != nil {
		return strings.Join(p.Delays, ", ")
	}
	return fmt.Sprintf("%s × %g, up to %s, jitter %g", p.BackoffFrom, p.BackoffFactor, p.BackoffTo, p.BackoffJitter)
}

func printSubscriptions(w io.Writer, subscriptions []admin.SubscriptionStatus) error {
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	t := newTable(w, "subscription", "state", "since", "owed", "expires", "wants", "error")
	for _, s := range subscriptions {
		since := s.CreatedAt
		if !s.StoppedAt.IsZero() {
			since = s.StoppedAt
		}
		t.row(s.Name, s.State, since, s.Owed, s.ExpiresAt, wants(s), s.Error)
	}
	return t.flush()
}

// wants is a filter or a condition, as it was given.
func wants(s admin.SubscriptionStatus) string {
	switch {
	case s.Condition == "" && string(s.Filter) == "{}":
		return "everything"
	case s.Condition == "":
		return string(s.Filter)
	case string(s.Params) == "{}":
		return s.Condition
	default:
		return fmt.Sprintf("%s, params %s", s.Condition, s.Params)
	}
}
