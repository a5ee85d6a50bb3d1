package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

// relayDetails is what is printed about one relay.
type relayDetails struct {
	admin.RelayStatus
	Stuck []admin.StuckStream `json:"stuck"`
}

func newRelays(a *app) *cobra.Command {
	return holding(about{
		use:   "relays",
		short: "See what writes the log to brokers",
		long: `A relay writes the log to a broker; posthorn relay runs one. It is a group too:
posthorn groups pauses, moves and deletes it, and posthorn dead-letters has the
events that its broker refused.`,
	}, relaysList.of(a), relaysShow.of(a))
}

var relaysList = listing[admin.RelayStatus]{
	about: about{
		use:   "list",
		short: "List relays, who leads them and how far they are",
		long: `List the relays of the namespace, who leads them and how far they are.

LAG is how many events the broker has not acknowledged, an estimate beyond 10,000,
and BEHIND the age of the first of them. STUCK are streams that the broker does
not take. ERROR is the last error of a relay that cannot write.`,
		example: "  posthorn relays list --namespace shop --json",
	},
	list: (*admin.Admin).Relays,
	columns: columns[admin.RelayStatus]{"relay|state|leader|since|position|lag|behind|stuck|dead|error", func(r admin.RelayStatus) []any {
		return []any{r.Relay, relayState(r), r.Owner, r.LedSince, r.Position, r.LagEvents, roughSeconds(r.LagSeconds), r.StuckStreams, r.DeadLetters, r.Error}
	}},
}

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

var relaysShow = showing[relayDetails]{
	about: about{
		use:     "show NAME",
		short:   "Show one relay: who leads it, how far it is, and which streams are stuck",
		example: "  posthorn relays show relay",
	},
	load: func(ctx context.Context, adm *admin.Admin, name string) (d relayDetails, err error) {
		if d.RelayStatus, err = adm.Relay(ctx, name); err != nil {
			return d, err
		}
		found, err := adm.StuckStreams(ctx, name)
		d.Stuck = append([]admin.StuckStream{}, found...)
		return d, err
	},
	print: printRelay,
}

var stuckColumns = columns[admin.StuckStream]{"stuck stream|events|first|published", func(s admin.StuckStream) []any {
	return []any{s.Stream, s.Events, s.Oldest, s.Since}
}}

func printRelay(w io.Writer, d relayDetails) error {
	f := newFields(w)
	f.field("relay", d.Relay)
	f.field("namespace", d.Namespace)
	f.field("streams", strings.Join(d.Streams, ", "))
	f.field("state", relayState(d.RelayStatus))
	f.field("leader", d.Owner)
	f.field("leads since", d.LedSince)
	f.field("leads until", d.LeadUntil)
	f.field("position", d.Position)
	f.field("lag", d.LagEvents)
	f.field("behind", roughSeconds(d.LagSeconds))
	f.field("oldest pending", d.OldestPending)
	f.field("written last", d.RelayedAt)
	f.field("error", d.Error)
	f.field("failed at", d.FailedAt)
	f.field("set aside", fmt.Sprintf("%d events of %d stuck streams", d.SetAside, d.StuckStreams))
	f.field("retries", d.Retries)
	f.field("dead letters", d.DeadLetters)
	if err := f.flush(); err != nil {
		return err
	}
	return stuckColumns.printBelow(w, d.Stuck)
}
