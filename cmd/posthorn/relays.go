package main

import (
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
	cmd := &cobra.Command{
		Use:   "relays",
		Short: "See what writes the log to brokers",
		Long: `A relay writes the log to a broker; posthorn relay runs one. It is a group too:
posthorn groups pauses, moves and deletes it, and posthorn dead-letters has the
events that its broker refused.`,
		Args: cobra.NoArgs,
		RunE: help,
	}
	cmd.AddCommand(newRelaysList(a), newRelaysShow(a))
	return cmd
}

func newRelaysList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List relays, who leads them and how far they are",
		Long: `List the relays of the namespace, who leads them and how far they are.

LAG is how many events the broker has not acknowledged, an estimate beyond 10,000,
and BEHIND the age of the first of them. STUCK are streams that the broker does
not take. ERROR is the last error of a relay that cannot write.`,
		Example: "  posthorn relays list --namespace shop --json",
		Args:    cobra.NoArgs,
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			relays, err := adm.Relays(cmd.Context())
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), append([]admin.RelayStatus{}, relays...))
			}
			t := newTable(cmd.OutOrStdout(), "relay", "state", "leader", "since", "position", "lag", "behind", "stuck", "dead", "error")
			for _, r := range relays {
				t.row(r.Relay, relayState(r), r.Owner, r.LedSince, r.Position, r.LagEvents, roughSeconds(r.LagSeconds), r.StuckStreams, r.DeadLetters, r.Error)
			}
			return t.flush()
		})
	}
	return cmd
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

func newRelaysShow(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show NAME",
		Short:   "Show one relay: who leads it, how far it is, and which streams are stuck",
		Example: "  posthorn relays show relay",
		Args:    cobra.ExactArgs(1),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			var d relayDetails
			var err error
			if d.RelayStatus, err = adm.Relay(cmd.Context(), args[0]); err != nil {
				return err
			}
			if d.Stuck, err = adm.StuckStreams(cmd.Context(), args[0]); err != nil {
				return err
			}
			if *asJSON {
				d.Stuck = append([]admin.StuckStream{}, d.Stuck...)
				return printJSON(cmd.OutOrStdout(), d)
			}
			return printRelay(cmd.OutOrStdout(), d)
		})
	}
	return cmd
}

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
	if err := f.flush(); err != nil || len(d.Stuck) == 0 {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	t := newTable(w, "stuck stream", "events", "first", "published")
	for _, s := range d.Stuck {
		t.row(s.Stream, s.Events, s.Oldest, s.Since)
	}
	return t.flush()
}
