package main

import (
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func newFailovers(a *app) *cobra.Command {
	return parent(about{
		use:   "failovers",
		short: "Show what failovers, crashes and restores of the database have lost, and bring it back",
		long: `After a failover to a standby that was behind, the log lacks events that others
had already. Each relay compares its broker with the log then, and each archive
its store, and the events that the log has lost are kept.`,
	},
		list(a, op.ListFailovers, failoversHelp, failoverColumns),
		newFailoversShow(a),
		change(a, op.BringBackFailover),
	)
}

const failoversHelp = `REPLAYED is when the last transaction was committed that a promoted server has:
events that were acknowledged later may be lost. LOST is the number of events
that a broker or an archive has and the log has not, and BACK how many of them
were brought back. NOT LOOKED are relays and archives that were not compared yet.`

var failoverColumns = columns[admin.Failover]{"id|at|reason|timeline|replayed|lost|back|not looked", func(f admin.Failover) []any {
	return []any{f.ID, f.At, f.Reason, f.Timeline, f.ReplayedAt, f.Lost, f.BroughtBack, strings.Join(f.NotLooked, ", ")}
}}

func newFailoversShow(a *app) *cobra.Command {
	return showCommand[op.FailoverDetails]{
		about: aboutOf(op.GetFailover, ""), fields: failoverFields,
		below: func(w io.Writer, d op.FailoverDetails) error { return lostColumns.printBelow(w, d.Events) },
		load: func(ctx context.Context, adm *admin.Admin, arg string) (op.FailoverDetails, error) {
			id, err := parseID(arg, "a failover", "failovers list")
			if err != nil {
				return op.FailoverDetails{}, err
			}
			return op.GetFailover.Call(ctx, adm, &op.ByID{ID: id})
		},
	}.build(a)
}

func failoverFields(field fields, d op.FailoverDetails) {
	field("failover", d.ID)
	field("at", d.At)
	field("reason", d.Reason)
	field("timeline", d.Timeline)
	field("replayed", d.ReplayedAt)
	field("last id before", d.LastID)
	field("first id after", d.NextID)
	field("lost", d.Lost)
	field("brought back", d.BroughtBack)
	field("looked", strings.Join(d.Looked, ", "))
	field("not looked", strings.Join(d.NotLooked, ", "))
	field("errors", strings.Join(d.Errors, "; "))
}

var lostColumns = columns[admin.LostEvent]{"lost event|stream|type|key|published|found by|back as|payload", func(e admin.LostEvent) []any {
	return []any{e.ID, e.Stream, e.Type, e.Key, e.PublishedAt, e.FoundBy, e.BackAs, string(e.Payload)}
}}
