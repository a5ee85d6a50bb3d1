package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

// importDetails is an import as posthorn imports show prints it.
type importDetails struct {
	admin.ImportStatus
	Known []admin.ImportedStream `json:"streams_at_broker"`
}

func newImports(a *app) *cobra.Command {
	return parent(about{
		use:   "imports",
		short: "Show and delete imports, which read brokers into the log",
		long:  "An import publishes events of other databases from a broker; posthorn import runs one.",
	}, importsList.build(a), importsShow.build(a), importsDelete.build(a))
}

var importsList = listCommand[admin.ImportStatus]{
	about: about{
		use:   "list",
		short: "List imports, their leaders and their positions",
		long: `List the imports of the namespace, their leaders and their positions.

LAG is the number of entries that the broker had left at the time LOOKED, and
BEHIND the age of the first of them. ERROR is the last error of an import that
cannot continue.`,
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

var importsShow = showCommand[importDetails]{
	about: about{
		use:     "show NAME",
		short:   "Show one import: its leader, and its position in each stream",
		example: "  posthorn imports show import",
	},
	load: func(ctx context.Context, adm *admin.Admin, name string) (d importDetails, err error) {
		if d.ImportStatus, err = adm.Import(ctx, name); err != nil {
			return d, err
		}
		d.Known, err = adm.ImportedStreams(ctx, name)
		return d, err
	},
	fields: importFields,
	below:  func(w io.Writer, d importDetails) error { return importedColumns.printBelow(w, d.Known) },
}

var importedColumns = columns[admin.ImportedStream]{"stream|position|imported|lag|behind|lost events|error", func(s admin.ImportedStream) []any {
	lag := "none at the broker"
	if s.LagEvents != nil {
		lag = fmt.Sprint(*s.LagEvents)
	}
	return []any{s.Stream, s.Position, s.Imported, lag, roughSeconds(s.LagSeconds), s.TrimmedAt, s.Error}
}}

func importFields(field fields, d importDetails) {
	field("import", d.Import)
	field("namespace", d.Namespace)
	field("from", d.Source)
	field("streams", strings.Join(d.Streams, ", "))
	field("state", importState(d.ImportStatus))
	field("leader", d.Owner)
	field("leads since", d.LedSince)
	field("imported", d.Imported)
	field("imported last", d.MovedAt)
	field("lag", importLag(d.ImportStatus))
	field("behind", importBehind(d.ImportStatus))
	field("looked", d.LookedAt)
	field("error", d.Error)
	field("failed at", d.FailedAt)
}

var importsDelete = changeCommand{
	about: about{
		use:   "delete NAME",
		short: "Delete an import with its position",
		long: `Delete an import with its position. The events that it published stay. Programs that
run it end with an error; when one is started again, it begins with the first event
that the broker has, and publishes all events of the broker a second time.`,
		example: "  posthorn imports delete import",
	},
	ask: func(_ context.Context, _ *admin.Admin, args []string) (string, error) {
		return "delete import " + args[0] + " with its position; when it starts again, it publishes all events of the broker once more", nil
	},
	goesOn: always,
	do: func(ctx context.Context, adm *admin.Admin, args []string) (result, error) {
		return result{}, adm.DeleteImport(ctx, args[0])
	},
}
