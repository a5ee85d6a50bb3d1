package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

// importDetails is what is printed about one import.
type importDetails struct {
	admin.ImportStatus
	Known []admin.ImportedStream `json:"streams_at_broker"`
}

func newImports(a *app) *cobra.Command {
	return holding(about{
		use:   "imports",
		short: "See and delete what reads brokers into the log",
		long:  `An import publishes what a broker has from other databases; posthorn import runs one.`,
	}, importsList.of(a), importsShow.of(a), importsDelete.of(a))
}

var importsList = listing[admin.ImportStatus]{
	about: about{
		use:   "list",
		short: "List imports, who leads them and how far they are",
		long: `List the imports of the namespace, who leads them and how far they are.

LAG is how many entries the broker had left when it was asked, at LOOKED, and BEHIND
how long it has had the first of them. ERROR is the last error of an import that
cannot go on.`,
		example: "  posthorn imports list --namespace shop --json",
	},
	list: (*admin.Admin).Imports,
	columns: columns[admin.ImportStatus]{"import|from|state|leader|imported|lag|behind|looked|error", func(i admin.ImportStatus) []any {
		return []any{i.Import, i.Source, importState(i), i.Owner, i.Imported, importLag(i), importBehind(i), i.LookedAt, i.Error}
	}},
}

func importState(i admin.ImportStatus) string {
	switch {
	case i.Owner == "":
		return "nobody leads"
	case i.Error != "":
		return "failing"
	case i.LagEvents == nil:
		return "begins"
	case *i.LagEvents > 0:
		return "behind"
	case len(i.Trimmed) > 0:
		return "has lost events"
	default:
		return "up to date"
	}
}

func importLag(i admin.ImportStatus) string {
	if i.LagEvents == nil {
		return "unknown"
	}
	return fmt.Sprint(*i.LagEvents)
}

func importBehind(i admin.ImportStatus) string {
	if i.LagSeconds == nil {
		return "unknown"
	}
	return roughSeconds(*i.LagSeconds)
}

var importsShow = showing[importDetails]{
	about: about{
		use:     "show NAME",
		short:   "Show one import: who leads it, and how far it is in each stream",
		example: "  posthorn imports show import",
	},
	load: func(ctx context.Context, adm *admin.Admin, name string) (d importDetails, err error) {
		if d.ImportStatus, err = adm.Import(ctx, name); err != nil {
			return d, err
		}
		found, err := adm.ImportedStreams(ctx, name)
		d.Known = append([]admin.ImportedStream{}, found...)
		return d, err
	},
	print: printImport,
}

var importedColumns = columns[admin.ImportedStream]{"stream|position|imported|lag|behind|lost events|error", func(s admin.ImportedStream) []any {
	lag := "none at the broker"
	if s.LagEvents != nil {
		lag = fmt.Sprint(*s.LagEvents)
	}
	return []any{s.Stream, s.Position, s.Imported, lag, roughSeconds(s.LagSeconds), s.TrimmedAt, s.Error}
}}

func printImport(w io.Writer, d importDetails) error {
	f := newFields(w)
	f.field("import", d.Import)
	f.field("namespace", d.Namespace)
	f.field("from", d.Source)
	f.field("streams", strings.Join(d.Streams, ", "))
	f.field("state", importState(d.ImportStatus))
	f.field("leader", d.Owner)
	f.field("leads since", d.LedSince)
	f.field("imported", d.Imported)
	f.field("imported last", d.MovedAt)
	f.field("lag", importLag(d.ImportStatus))
	f.field("behind", importBehind(d.ImportStatus))
	f.field("looked", d.LookedAt)
	f.field("error", d.Error)
	f.field("failed at", d.FailedAt)
	if err := f.flush(); err != nil {
		return err
	}
	return importedColumns.printBelow(w, d.Known)
}

var importsDelete = doing{
	about: about{
		use:   "delete NAME",
		short: "Forget an import and how far it was",
		long: `Forget an import and how far it was. The events that it published stay. Programs that
run it end with an error; when one is started again, it begins with the first event
that the broker has, and imports again what the log has already.`,
		example: "  posthorn imports delete import",
	},
	do: func(ctx context.Context, adm *admin.Admin, args []string) (outcome, error) {
		return outcome{}, adm.DeleteImport(ctx, args[0])
	},
}
