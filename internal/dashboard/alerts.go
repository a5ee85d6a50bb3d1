package dashboard

import (
	"fmt"
	"strings"
)

// rule is an alert rule.
type rule struct {
	name, expr, wait, severity, summary, remedy string
}

var rules = []rule{
	{
		"PosthornDatabaseUnreachable", `max by (namespace) (posthorn_up) == 0`, "2m", "critical",
		"No process of namespace {{ $labels.namespace }} can read the status of its groups.",
		"Check that the database answers; posthorn doctor says why it does not.",
	},
	{
		"PosthornMetricsMissing", `absent(posthorn_up)`, "5m", "critical",
		"No process reports metrics of Posthorn.",
		"Check that posthorn serve runs, and that Prometheus scrapes /metrics with a token that may read.",
	},
	{
		"PosthornGroupBehind", `max by (namespace, group) (posthorn_group_lag_seconds) > 60 unless on (namespace, group) max by (namespace, group) (posthorn_group_paused) == 1`, "5m", "warning",
		"Group {{ $labels.group }} is {{ $value | humanizeDuration }} behind.",
		"posthorn groups show {{ $labels.group }} names its readers; start workers, or look for a slow handler.",
	},
	{
		"PosthornDeadLetters", `max by (namespace, group) (posthorn_group_dead_letters) > 0`, "0m", "warning",
		"{{ $value }} events of group {{ $labels.group }} have failed for good.",
		"posthorn dead-letters list --group {{ $labels.group }} shows the errors; redrive them when the cause is removed.",
	},
	{
		"PosthornDeadLettersGrow", `max by (namespace, group) (delta(posthorn_group_dead_letters[10m])) > 100`, "0m", "critical",
		"Group {{ $labels.group }} got {{ $value | humanize }} dead letters in 10 minutes.",
		"posthorn groups pause {{ $labels.group }} keeps further events until the cause is removed.",
	},
	{
		"PosthornLeasesExpired", `max by (namespace, group) (posthorn_group_leases_expired) > 0`, "10m", "warning",
		"Group {{ $labels.group }} has leases whose worker is silent, and no worker takes them over.",
		"Start workers of the group.",
	},
	{
		"PosthornLeasesLost", `sum by (namespace, group) (increase(posthorn_leases_lost_total[10m])) > 0`, "0m", "warning",
		"Workers of group {{ $labels.group }} lost leases: a process or the network stood still.",
		"Look at the processor time and the network of the workers; a longer lease gives them more time.",
	},
	{
		"PosthornTransactionOpen", `max by (namespace, application) (posthorn_log_held_seconds) > 600`, "0m", "warning",
		"Application {{ $labels.application }} has had a transaction open for {{ $value | humanizeDuration }}.",
		"posthorn doctor names its process; events behind it may wait, and old partitions stay.",
	},
	{
		"PosthornImportStopped", `max by (namespace, import) (posthorn_import_running) == 0`, "5m", "warning",
		"No process runs import {{ $labels.import }}.",
		"Start posthorn import for it.",
	},
	{
		"PosthornImportFailing", `max by (namespace, import) (posthorn_import_failing) == 1`, "5m", "warning",
		"An error stops import {{ $labels.import }} or one of its streams.",
		"posthorn imports list shows the error.",
	},
	{
		"PosthornWebhookDisabled", `max by (namespace, webhook) (posthorn_webhook_disabled) == 1`, "0m", "warning",
		"Webhook {{ $labels.webhook }} is disabled.",
		"posthorn webhooks show {{ $labels.webhook }} says why; posthorn webhooks enable sends what it has missed.",
	},
	{
		"PosthornWebhookFailing", `max by (namespace, webhook) (posthorn_webhook_failing_seconds) > 3600`, "5m", "warning",
		"Every request to webhook {{ $labels.webhook }} has failed for {{ $value | humanizeDuration }}.",
		"posthorn webhooks deliveries {{ $labels.webhook }} shows the answers.",
	},
	{
		"PosthornHTTPErrors", `sum(rate(posthorn_http_requests_total{status=~"5.."}[5m])) > 0`, "5m", "warning",
		"The HTTP server answers {{ $value | humanize }} requests a second with an error of its own.",
		"The server's log has the errors.",
	},
}

// Alerts returns the alert rules as YAML, in the form that Prometheus loads.
func Alerts() []byte {
	var b strings.Builder
	b.WriteString("groups:\n  - name: posthorn\n    rules:\n")
	for _, r := range rules {
		fmt.Fprintf(&b, "      - alert: %s\n        expr: %s\n", r.name, quoted(r.expr))
		if r.wait != "0m" {
			fmt.Fprintf(&b, "        for: %s\n", r.wait)
		}
		fmt.Fprintf(&b, "        labels:\n          severity: %s\n", r.severity)
		fmt.Fprintf(&b, "        annotations:\n          summary: %s\n          remedy: %s\n", quoted(r.summary), quoted(r.remedy))
	}
	return []byte(b.String())
}

// quoted is a string as YAML writes it in single quotes.
func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
