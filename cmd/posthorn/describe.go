package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

// about describes a command to its user. Commands that only list, show or do one thing
// are made from such a description and a function of package admin.
type about struct{ use, short, long, example string }

func (d about) command(args cobra.PositionalArgs) *cobra.Command {
	return &cobra.Command{Use: d.use, Short: d.short, Long: d.long, Example: d.example, Args: args}
}

// holding is a command that only holds others.
func holding(d about, commands ...*cobra.Command) *cobra.Command {
	cmd := d.command(cobra.NoArgs)
	cmd.RunE = help
	cmd.AddCommand(commands...)
	return cmd
}

// columns are a table of things.
type columns[T any] struct {
	names string // separated by |
	row   func(T) []any
}

func (c columns[T]) print(w io.Writer, list []T) error {
	t := newTable(w, strings.Split(c.names, "|")...)
	for _, x := range list {
		t.row(c.row(x)...)
	}
	return t.flush()
}

// printBelow prints the table after an empty line, unless it is empty.
func (c columns[T]) printBelow(w io.Writer, list []T) error {
	if len(list) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	return c.print(w, list)
}

// printOrJSON prints the table, or the things themselves.
func (c columns[T]) printOrJSON(w io.Writer, list []T, asJSON bool) error {
	if asJSON {
		return printJSON(w, append([]T{}, list...))
	}
	return c.print(w, list)
}

// listing is a command that lists things of the namespace.
type listing[T any] struct {
	about
	list    func(*admin.Admin, context.Context) ([]T, error)
	columns columns[T]
}

func (l listing[T]) of(a *app) *cobra.Command {
	cmd := l.command(cobra.NoArgs)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			all, err := l.list(adm, cmd.Context())
			if err != nil {
				return err
			}
			return l.columns.printOrJSON(cmd.OutOrStdout(), all, *asJSON)
		})
	}
	return cmd
}

// showing is a command that shows the thing that its argument names.
type showing[T any] struct {
	about
	otherwise string // the name where the argument may be left out
	load      func(ctx context.Context, adm *admin.Admin, name string) (T, error)
	print     func(io.Writer, T) error
}

func (s showing[T]) of(a *app) *cobra.Command {
	cmd := s.command(named(s.otherwise))
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			found, err := s.load(cmd.Context(), adm, append(args, s.otherwise)[0])
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), found)
			}
			return s.print(cmd.OutOrStdout(), found)
		})
	}
	return cmd
}

func named(otherwise string) cobra.PositionalArgs {
	if otherwise != "" {
		return cobra.MaximumNArgs(1)
	}
	return cobra.ExactArgs(1)
}

// doing is a command that does something to the thing that its arguments name.
type doing struct {
	about
	json bool
	ask  func(ctx context.Context, adm *admin.Admin, args []string) (question string, err error) // unless --yes is given
	do   func(ctx context.Context, adm *admin.Admin, args []string) (outcome, error)
}

// outcome is a sentence about what was done, and the same for --json.
type outcome struct {
	sentence string
	result   any
}

// done makes an outcome of a function that returns an error alone. The sentence has the
// name as its %s.
func done(sentence string, do func(adm *admin.Admin, ctx context.Context, name string) error) func(context.Context, *admin.Admin, []string) (outcome, error) {
	return func(ctx context.Context, adm *admin.Admin, args []string) (outcome, error) {
		return outcome{sentence: fmt.Sprintf(sentence, args[0])}, do(adm, ctx, args[0])
	}
}

func (d doing) of(a *app) *cobra.Command {
	cmd := d.command(cobra.ExactArgs(len(strings.Fields(d.use)) - 1))
	yes, asJSON := new(bool), new(bool)
	if d.ask != nil {
		yes = yesFlag(cmd)
	}
	if d.json {
		asJSON = jsonFlag(cmd)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			if err := d.confirm(cmd, adm, args, *yes); err != nil {
				return err
			}
			o, err := d.do(cmd.Context(), adm, args)
			if err != nil {
				return err
			}
			return o.print(cmd, *asJSON)
		})
	}
	return cmd
}

func (d doing) confirm(cmd *cobra.Command, adm *admin.Admin, args []string, yes bool) error {
	if d.ask == nil {
		return nil
	}
	question, err := d.ask(cmd.Context(), adm, args)
	if err != nil {
		return err
	}
	return confirm(cmd, yes, question)
}

func (o outcome) print(cmd *cobra.Command, asJSON bool) error {
	if asJSON {
		return printJSON(cmd.OutOrStdout(), o.result)
	}
	if o.sentence == "" {
		return nil
	}
	_, err := fmt.Fprintln(cmd.OutOrStdout(), o.sentence)
	return err
}
