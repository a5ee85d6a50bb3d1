package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
	"github.com/posthorn/posthorn/schema"
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
		newFailoversCompare(a),
		change(a, op.BringBackFailover),
	)
}

const failoversHelp = `REPLAYED is when the last transaction was committed that a promoted server has:
events that were acknowledged later may be lost. LOST is the number of events
that a broker, an archive or an import elsewhere has and the log has not, and BACK
how many of them were brought back. NOT LOOKED are relays and archives that were not compared yet.`

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

const failoversCompareLong = `Ask a database that imports this log for events that a failover has lost.

The log does not know which databases import it, so name each. What it has and the
log has not is kept: failovers show lists it, and bring-back publishes it again.
The databases that have imported it do not get it twice. Doing this again changes
nothing.

URL is of the database that imports, with a role that is posthorn_consumer there.
Put its password into a file that PGPASSFILE names: other users of this machine can
see arguments.`

func newFailoversCompare(a *app) *cobra.Command {
	cmd := about{
		"compare ID --import URL", "Ask a database that imports the log for events that a failover has lost", failoversCompareLong,
		"  posthorn failovers compare 3 --import postgres://posthorn@reports/reports",
	}.command()
	url := cmd.Flags().String("import", "", "the database that imports this log")
	into := cmd.Flags().String("import-namespace", "", "the namespace there that it imports into (default: the name of this one)")
	_ = cmd.MarkFlagRequired("import")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := parseID(args[0], "a failover", "failovers list")
		if err != nil {
			return err
		}
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			return a.compareImport(cmd, adm, id, *url, cmp.Or(*into, a.namespace), *asJSON)
		})
	}
	return cmd
}

func (a *app) compareImport(cmd *cobra.Command, adm *admin.Admin, failover int64, url, namespace string, asJSON bool) error {
	ctx := cmd.Context()
	conn, err := connect(ctx, url, a.log, admin.Connect)
	if err != nil {
		return fmt.Errorf("--import: %w", err)
	}
	defer disconnect(ctx, conn)
	if err := schema.Check(ctx, conn); err != nil {
		return fmt.Errorf("--import: %w", err)
	}
	place := addresses(conn.Config()) + "/" + conn.Config().Database
	found, err := adm.CompareImport(ctx, failover, admin.Importer{DB: conn, Namespace: namespace, Place: place})
	switch {
	case err != nil:
		return err
	case asJSON:
		return printJSON(cmd.OutOrStdout(), found)
	default:
		return printLine(cmd, "compared %s that %s has imported; the log has lost %d; new in the list: %d",
			op.Counted(found.Compared, "event"), place, found.Lost, found.Fresh)
	}
}
