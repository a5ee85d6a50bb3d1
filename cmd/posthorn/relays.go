package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func newRelays(a *app) *cobra.Command {
	return parent(about{
		use:   "relays",
		short: "Show relays, which write the log to brokers",
		long: `A relay writes the log to a broker; posthorn relay runs one. It is a group too:
posthorn groups pauses, moves and deletes it, and posthorn dead-letters has the
events that its broker refused.`,
	},
		list(a, op.ListRelays, relaysHelp, relayColumns),
		show(a, op.GetRelay, relayFields, func(w io.Writer, d op.RelayDetails) error { return stuckColumns.printBelow(w, d.Stuck) }),
	)
}

const relaysHelp = `LAG is the number of events that the broker has not acknowledged, an estimate
beyond 10,000, and BEHIND the age of the first of them. STUCK is the number of
streams whose events the broker refuses. ERROR is the last error of a relay that
cannot write.`

var relayColumns = columns[admin.RelayStatus]{"relay|state|leader|since|position|lag|behind|stuck|dead|error", func(r admin.RelayStatus) []any {
	return []any{r.Relay, relayState(r), r.Owner, r.LedSince, r.Position, r.LagEvents, roughSeconds(r.LagSeconds), r.StuckStreams, r.DeadLetters, r.Error}
}}

func relayState(r admin.RelayStatus) string {
	switch {
	case r.Paused:
		return "paused"
	case r.Owner == "":
		return "nobody leads"
	case r.StuckStreams > 0:
		return "streams are stuck"
	case r.Error != "":
		return "failing"
	case r.LagEvents > 0:
		return "behind"
	default:
		return "up to date"
	}
}

var stuckColumns = columns[admin.StuckStream]{"stuck stream|events|first|published", func(s admin.StuckStream) []any {
	return []any{s.Stream, s.Events, s.Oldest, s.Since}
}}

func relayFields(field fields, d op.RelayDetails) {
	field("relay", d.Relay)
	field("namespace", d.Namespace)
	field("streams", strings.Join(d.Streams, ", "))
	field("state", relayState(d.RelayStatus))
	field("leader", d.Owner)
	field("leads since", d.LedSince)
	field("leads until", d.LeadUntil)
	field("position", d.Position)
	field("lag", d.LagEvents)
	field("behind", roughSeconds(d.LagSeconds))
	field("oldest pending", d.OldestPending)
	field("written last", d.RelayedAt)
	field("error", d.Error)
	field("failed at", d.FailedAt)
	field("set aside", fmt.Sprintf("%d events of %d stuck streams", d.SetAside, d.StuckStreams))
	field("retries", d.Retries)
	field("dead letters", d.DeadLetters)
}
