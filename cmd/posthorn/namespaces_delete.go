package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func newDeleteNamespace(a *app) *cobra.Command {
	in := &op.ByName{}
	return deletionCommand(a, op.DeleteNamespace, in, func(_ context.Context, _ *admin.Admin) ([]string, error) {
		return []string{in.Name}, nil
	})
}

func newKeepNamespace(a *app) *cobra.Command {
	in := &op.KeepNamespaceInput{}
	cmd := deletionCommand(a, op.KeepNamespace, in, func(ctx context.Context, adm *admin.Admin) ([]string, error) {
		kept, err := op.KeepNamespace.Call(ctx, adm, in)
		return kept.Left, err
	})
	_ = cmd.MarkFlagRequired("only") // it was just defined
	return cmd
}

// deletedNamespace is how one namespace was deleted, as --json prints it.
type deletedNamespace struct {
	Name string `json:"name"`
	Rows int64  `json:"rows"`
}

// deletionCommand makes a command that deletes namespaces until nothing of them is left. Begin
// returns their names.
func deletionCommand(a *app, o op.Any, in any, begin func(context.Context, *admin.Admin) ([]string, error)) *cobra.Command {
	cmd := aboutOf(o, "The command goes on until all is deleted. If it is interrupted, run it again.").command()
	yes, asJSON := yesFlag(cmd), jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := readArguments(o, in, args); err != nil {
			return err
		}
		if checked, ok := in.(interface{ Check() error }); ok {
			if err := checked.Check(); err != nil {
				return usageError{err, "say so with --only: all other namespaces are deleted"}
			}
		}
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			question, err := o.Question(cmd.Context(), adm, in)
			if err != nil {
				return err
			}
			if err := confirm(cmd, *yes, question); err != nil {
				return err
			}
			names, err := begin(cmd.Context(), adm)
			if err != nil {
				return err
			}
			deleted := []deletedNamespace{}
			for _, name := range names {
				n, err := deleteNamespace(cmd, adm, name)
				if err != nil {
					return err
				}
				if !*asJSON {
					done := "deleted"
					if name == "default" {
						done = "emptied"
					}
					if err := printLine(cmd, "namespace %s is %s: %s", name, done, op.Counted(n, "row")); err != nil {
						return err
					}
				}
				deleted = append(deleted, deletedNamespace{name, n})
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), deleted)
			}
			return nil
		})
	}
	addFlags(cmd.Flags(), in)
	return cmd
}

// deleteNamespace deletes all parts of a namespace, and prints the progress. It says what it waits for.
func deleteNamespace(cmd *cobra.Command, adm *admin.Admin, name string) (rows int64, err error) {
	p := newProgress(cmd.ErrOrStderr(), "deleted rows of "+name+":")
	defer p.end()
	for reported := (time.Time{}); ; {
		part, err := adm.DeleteNamespace(cmd.Context(), name)
		if err != nil {
			return rows, err
		}
		rows += part.Rows
		p.at(int(rows))
		if part.Done {
			return rows, nil
		}
		if strings.Contains(part.Part, " ") && time.Since(reported) > 30*time.Second { // no table: transactions
			reported = time.Now()
			fmt.Fprintln(cmd.ErrOrStderr(), "posthorn: waits for "+oneLine.Replace(part.Part))
		}
	}
}
