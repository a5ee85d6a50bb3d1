package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

// about describes a command to its user. Commands that list things, show one or do
// something to one are made from such a description and a function of package admin;
// flags of their own are added to the command that is made.
type about struct{ use, short, long, example string }

func (d about) command() *cobra.Command {
	return &cobra.Command{Use: d.use, Short: d.short, Long: d.long, Example: d.example, Args: argumentsOf(d.use)}
}

// argumentsOf reads the number of arguments from a usage line: [NAME] may be left out,
// and NAME... is one or more. Flags in the line are ignored.
func argumentsOf(use string) cobra.PositionalArgs {
	least, most := 0, 0
	for _, word := range strings.Fields(use)[1:] {
		if strings.HasPrefix(word, "-") {
			break
		}
		most++
		if !strings.HasPrefix(word, "[") {
			least++
		}
		if strings.Contains(word, "...") || strings.Contains(word, "…") {
			most = math.MaxInt
			break
		}
	}
	return cobra.RangeArgs(least, most)
}

// holding is a command that only holds other commands.
func holding(d about, commands ...*cobra.Command) *cobra.Command {
	cmd := d.command()
	cmd.RunE = help
	cmd.AddCommand(commands...)
	return cmd
}

// listing is a command that lists things in a table, or as JSON.
type listing[T any] struct {
	about
	limit   *int                                          // of the number of things; list is asked for one more, to tell whether there are more
	keepers *keeperFlags                                  // open sealed payloads, which only the JSON has
	prepare func(cmd *cobra.Command, args []string) error // checks flags before it connects; may be nil
	list    func(*admin.Admin, context.Context) ([]T, error)
	columns columns[T]
}

func (l listing[T]) of(a *app) *cobra.Command {
	cmd := l.command()
	if l.keepers != nil {
		l.keepers.add(cmd)
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if l.prepare != nil {
			if err := l.prepare(cmd, args); err != nil {
				return err
			}
		}
		keepers := l.keepers
		if !*asJSON {
			keepers = nil
		}
		return a.withOpeningAdmin(cmd.Context(), keepers, func(adm *admin.Admin) error {
			found, err := l.find(cmd, adm)
			if err != nil {
				return err
			}
			return l.columns.printOrJSON(cmd.OutOrStdout(), found, *asJSON)
		})
	}
	return cmd
}

func (l listing[T]) find(cmd *cobra.Command, adm *admin.Admin) ([]T, error) {
	if l.limit == nil {
		return l.list(adm, cmd.Context())
	}
	shown := *l.limit
	*l.limit++
	found, err := l.list(adm, cmd.Context())
	if err != nil {
		return nil, err
	}
	return cut(cmd, found, shown)
}

// showing is a command that shows the thing that its argument names.
type showing[T any] struct {
	about
	otherwise string       // the name where the argument may be left out
	keepers   *keeperFlags // open a sealed payload
	load      func(ctx context.Context, adm *admin.Admin, name string) (T, error)
	fields    func(fields, T)
	below     func(w io.Writer, found T) error // prints the rest; may be nil
}

func (s showing[T]) of(a *app) *cobra.Command {
	cmd := s.command()
	if s.keepers != nil {
		s.keepers.add(cmd)
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withOpeningAdmin(cmd.Context(), s.keepers, func(adm *admin.Admin) error {
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

func (s showing[T]) print(w io.Writer, found T) error {
	if err := printFields(w, func(f fields) { s.fields(f, found) }); err != nil || s.below == nil {
		return err
	}
	return s.below(w, found)
}

// doing is a command that does something to the things that its arguments name.
type doing struct {
	about
	json    bool
	prepare func(cmd *cobra.Command, args []string) error                                           // before it connects: checks flags, reads the standard input
	ask     func(ctx context.Context, adm *admin.Admin, args []string) (question string, err error) // "": none
	do      func(ctx context.Context, adm *admin.Admin, args []string) (outcome, error)
}

// outcome is a sentence about a change, and the same for --json.
type outcome struct {
	sentence string
	result   any
}

// done makes an outcome of a function that returns only an error. The name replaces the
// %s of the sentence.
func done(sentence string, do func(adm *admin.Admin, ctx context.Context, name string) error) func(context.Context, *admin.Admin, []string) (outcome, error) {
	return func(ctx context.Context, adm *admin.Admin, args []string) (outcome, error) {
		return outcome{sentence: fmt.Sprintf(sentence, args[0])}, do(adm, ctx, args[0])
	}
}

func (d doing) of(a *app) *cobra.Command {
	cmd := d.command()
	yes, asJSON := new(bool), new(bool)
	if d.ask != nil {
		yes = yesFlag(cmd)
	}
	if d.json {
		asJSON = jsonFlag(cmd)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if d.prepare != nil {
			if err := d.prepare(cmd, args); err != nil {
				return err
			}
		}
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
	if err != nil || question == "" {
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
	return printLine(cmd, "%s", o.sentence)
}
