package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func newImports(a *app) *cobra.Command {
	return parent(about{
		use:   "imports",
		short: "Show and delete imports, which read brokers into the log",
		long:  "An import publishes events of other databases from a broker; posthorn import runs one.",
	},
		list(a, op.ListImports, importsHelp, importColumns),
		show(a, op.GetImport, importFields, printImport),
		change(a, op.DeleteImport, func(c *changeCommand) { c.goesOn = always }),
	)
}

const importsHelp = `LAG is the number of entries that the broker had left at the time LOOKED, and
BEHIND the age of the first of them. ERROR is the last error of an import that
cannot continue.`

var importColumns = columns[admin.ImportStatus]{"import|from|state|leader|imported|lag|behind|looked|error", func(i admin.ImportStatus) []any {
	return []any{i.Import, i.Source, importState(i), i.Owner, i.Imported, importLag(i), importBehind(i), i.LookedAt, i.Error}
}}

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

var importedColumns = columns[admin.ImportedStream]{"stream|position|imported|lag|behind|lost events|error", func(s admin.ImportedStream) []any {
	lag := "none at the broker"
	if s.LagEvents != nil {
		lag = fmt.Sprint(*s.LagEvents)
	}
	return []any{s.Stream, s.Position, s.Imported, lag, roughSeconds(s.LagSeconds), s.TrimmedAt, s.Error}
}}

// printImport prints the streams of an import and its dead letters.
func printImport(w io.Writer, d op.ImportDetails) error {
	if err := importedColumns.printBelow(w, d.Known); err != nil || len(d.DeadLetters) == 0 {
		return err
	}
	return importDeadColumns.printBelow(w, d.DeadLetters)
}

var importDeadColumns = columns[admin.ImportDeadLetter]{"dead letter|stream|type|key|published|failed|reason|payload", func(l admin.ImportDeadLetter) []any {
	return []any{l.EventID, l.Stream, l.Type, l.Key, l.PublishedAt, l.FailedAt, l.Reason, string(l.Payload)}
}}

func importFields(field fields, d op.ImportDetails) {
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
