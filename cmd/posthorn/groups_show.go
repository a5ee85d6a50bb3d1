package main

import (
	"fmt"
	"strings"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func groupFields(field fields, d op.GroupDetails) {
	field("group", d.Group)
	field("namespace", d.Namespace)
	field("state", groupState(d.GroupStatus))
	field("position", d.Position)
	field("lag", d.LagEvents)
	field("behind", roughSeconds(d.LagSeconds))
	field("oldest pending", d.OldestPending)
	field("leases", fmt.Sprintf("%d, %d of them expired", d.Leases, d.ExpiredLeases))
	field("retries", d.Retries)
	field("blocked slots", d.BlockedSlots)
	field("dead letters", d.DeadLetters)
	field("held back by", heldBackBy(d.GroupStatus))
	field("order", d.Order)
	field("slots", d.Policy.Slots)
	field("attempts", attempts(*d.Policy))
	field("delays", delays(*d.Policy))
	field("on failure", d.Policy.OnFailure)
	field("read ahead", d.Policy.ReadAhead)
	field("created", d.Policy.CreatedAt)
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

// wants is the filter or the condition of a subscription.
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
