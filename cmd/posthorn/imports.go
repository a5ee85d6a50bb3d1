package main

import (
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
	cmd := &cobra.Command{
		Use:   "imports",
		Short: "See and delete what reads brokers into the log",
		Long:  `An import publishes what a broker has from other databases; posthorn import runs one.`,
		Args:  cobra.NoArgs,
		RunE:  help,
	}
	cmd.AddCommand(newImportsList(a), newImportsShow(a), newImportsDelete(a))
	return cmd
}

func newImportsList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List imports, who leads them and how far they are",
		Long: `List the imports of the namespace, who leads them and how far they are.

LAG is how many entries the broker had left when it was asked, at LOOKED, and BEHIND
how long it has had the first of them. ERROR is the last error of an import that
cannot go on.`,
		Example: "  posthorn imports list --namespace shop --json",
		Args:    cobra.NoArgs,
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			imports, err := adm.Imports(cmd.Context())
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), append([]admin.ImportStatus{}, imports...))
			}
			t := newTable(cmd.OutOrStdout(), "import", "from", "state", "leader", "imported", "lag", "behind", "looked", "error")
			for _, i := range imports {
				t.row(i.Import, i.Source, importState(i), i.Owner, i.Imported, importLag(i), importBehind(i), i.LookedAt, i.Error)
			}
			return t.flush()
		})
	}
	return cmd
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

func newImportsShow(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "show NAME",
		Short:   "Show one import: who leads it, and how far it is in each stream",
		Example: "  posthorn imports show import",
		Args:    cobra.ExactArgs(1),
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			var d importDetails
			var err error
			if d.ImportStatus, err = adm.Import(cmd.Context(), args[0]); err != nil {
				return err
			}
			if d.Known, err = adm.ImportedStreams(cmd.Context(), args[0]); err != nil {
				return err
			}
			if *asJSON {
				d.Known = append([]admin.ImportedStream{}, d.Known...)
				return printJSON(cmd.OutOrStdout(), d)
			}
			return printImport(cmd.OutOrStdout(), d)
		})
	}
	return cmd
}

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
	if err := f.flush(); err != nil || len(d.Known) == 0 {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	t := newTable(w, "stream", "position", "imported", "lag", "behind", "lost events", "error")
	for _, s := range d.Known {
		lag := "none at the broker"
		if s.LagEvents != nil {
			lag = fmt.Sprint(*s.LagEvents)
		}
		t.row(s.Stream, s.Position, s.Imported, lag, roughSeconds(s.LagSeconds), s.TrimmedAt, s.Error)
	}
	return t.flush()
}

func newImportsDelete(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "delete NAME",
		Short: "Forget an import and how far it was",
		Long: `Forget an import and how far it was. The events that it published stay. Programs that
run it end with an error; when one is started again, it begins with the first event
that the broker has, and imports again what the log has already.`,
		Example: "  posthorn imports delete import",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
				return adm.DeleteImport(cmd.Context(), args[0])
			})
		},
	}
}
