package main

import (
	"fmt"
	"strings"

	"github.com/posthorn/posthorn/admin"
)

// orMore is a number that was counted up to a limit.
func orMore(n int64, more bool) any {
	if more {
		return fmt.Sprintf("%d or more", n)
	}
	return n
}

func webhookFields(field fields, h admin.Webhook) {
	field("webhook", h.Name)
	field("url", h.URL)
	field("state", h.State)
	field("disabled at", h.DisabledAt)
	field("disabled because", h.DisabledReason)
	field("failing since", h.FailingSince)
	field("last error", h.LastError)
	field("owed", orMore(h.Owed, h.OwedOrMore))
	field("oldest owed", h.OldestOwed)
	field("dead letters", orMore(h.DeadLetters, h.DeadLettersOrMore))
	field("sent by", h.Owner)
	field("wants", wants(admin.SubscriptionStatus{Filter: h.Filter, Condition: h.Condition, Params: h.Params}))
	field("body", h.Body)
	field("batch", h.Batch)
	field("gzip", h.Gzip)
	field("order", h.Order)
	field("concurrency", h.Concurrency)
	field("rate", rate(h.Rate))
	field("timeout", roughSeconds(h.TimeoutSeconds))
	field("delays", strings.Join(h.Delays, ", "))
	field("disable after", never(h.DisableAfter))
	field("headers", strings.Join(h.Headers, ", "))
	field("created", h.CreatedAt)
}

func rate(perSecond float64) string {
	if perSecond == 0 {
		return "no limit"
	}
	return fmt.Sprintf("%g a second", perSecond)
}

func never(period string) string {
	if period == "" {
		return "never"
	}
	return period
}

var webhookSecretColumns = columns[admin.WebhookSecret]{"signs with|since|until|public key", func(s admin.WebhookSecret) []any {
	return []any{s.Kind, s.CreatedAt, s.ExpiresAt, s.PublicKey}
}}
