package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/posthorn/posthorn/admin"
)

// groupDetails is what is printed about one group.
type groupDetails struct {
	admin.GroupStatus
	Policy        admin.GroupPolicy          `json:"policy"`
	Subscriptions []admin.SubscriptionStatus `json:"subscriptions"`
}

var groupsShow = showing[groupDetails]{
	about: about{
		use:     "show NAME",
		short:   "Show one group: where it stands, its policy and its subscriptions",
		example: "  posthorn groups show billing",
	},
	load: func(ctx context.Context, adm *admin.Admin, name string) (d groupDetails, err error) {
		if d.GroupStatus, err = adm.Group(ctx, name); err != nil {
			return d, err
		}
		if d.Policy, err = adm.GroupPolicy(ctx, name); err != nil {
			return d, err
		}
		found, err := adm.Subscriptions(ctx, name)
		d.Subscriptions = append([]admin.SubscriptionStatus{}, found...)
		return d, err
	},
	print: printGroup,
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
	if err := f.flush(); err != nil {
		return err
	}
	return subscriptionColumns.printBelow(w, d.Subscriptions)
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

var subscriptionColumns = columns[admin.SubscriptionStatus]{"subscription|state|since|owed|expires|wants|error", func(s admin.SubscriptionStatus) []any {
	since := s.CreatedAt
	if !s.StoppedAt.IsZero() {
		since = s.StoppedAt
	}
	return []any{s.Name, s.State, since, s.Owed, s.ExpiresAt, wants(s), s.Error}
}}

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
