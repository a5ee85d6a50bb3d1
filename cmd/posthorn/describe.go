package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
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

// parent makes a command that only holds other commands.
func parent(d about, commands ...*cobra.Command) *cobra.Command {
	cmd := d.command()
	cmd.RunE = help
	cmd.AddCommand(commands...)
	return cmd
}

// listCommand is a command that lists things in a table, or as JSON.
type listCommand[T any] struct {
	about
	limit   *int         // of the number of things; list is asked for one more, to tell whether there are more
	keepers *keeperFlags // open sealed payloads, which only the JSON has
	// prepare checks flags before the command connects. It may be nil.
	prepare func(cmd *cobra.Command, args []string) error
	list    func(*admin.Admin, context.Context) ([]T, error)
	columns columns[T]
}

func (l listCommand[T]) build(a *app) *cobra.Command {
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

func (l listCommand[T]) find(cmd *cobra.Command, adm *admin.Admin) ([]T, error) {
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

// showCommand is a command that shows the thing that its argument names.
type showCommand[T any] struct {
	about
	defaultName string       // the name where the argument may be left out
	keepers     *keeperFlags // open a sealed payload
	load        func(ctx context.Context, adm *admin.Admin, name string) (T, error)
	fields      func(fields, T)
	below       func(w io.Writer, found T) error // prints the rest; may be nil
}

func (s showCommand[T]) build(a *app) *cobra.Command {
	cmd := s.command()
	if s.keepers != nil {
		s.keepers.add(cmd)
	}
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return a.withOpeningAdmin(cmd.Context(), s.keepers, func(adm *admin.Admin) error {
			found, err := s.load(cmd.Context(), adm, append(args, s.defaultName)[0])
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

func (s showCommand[T]) print(w io.Writer, found T) error {
	if err := printFields(w, func(f fields) { s.fields(f, found) }); err != nil || s.below == nil {
		return err
	}
	return s.below(w, found)
}

// changeCommand is a command that changes the things that its arguments name.
type changeCommand struct {
	about
	json bool
	// prepare runs before the command connects: it checks flags, and reads the standard
	// input. It may be nil.
	prepare func(cmd *cobra.Command, args []string) error
	// ask returns a question for the user, or "" for none. It may be nil. docs/operations.md
	// says which commands ask.
	ask func(ctx context.Context, adm *admin.Admin, args []string) (question string, err error)
	// goesOn tells that the command does not need an answer where there is no terminal. It
	// may be nil: then the command is refused there.
	goesOn func() bool
	do     func(ctx context.Context, adm *admin.Admin, args []string) (result, error)
}

// result describes a change: as a sentence, and as a value for --json.
type result struct {
	sentence string
	value    any
}

func (c changeCommand) build(a *app) *cobra.Command {
	cmd := c.command()
	yes, asJSON := new(bool), new(bool)
	if c.ask != nil {
		yes = yesFlag(cmd)
	}
	if c.json {
		asJSON = jsonFlag(cmd)
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if c.prepare != nil {
			if err := c.prepare(cmd, args); err != nil {
				return err
			}
		}
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			if err := c.confirm(cmd, adm, args, *yes); err != nil {
				return err
			}
			r, err := c.do(cmd.Context(), adm, args)
			if err != nil {
				return err
			}
			return r.print(cmd, *asJSON)
		})
	}
	return cmd
}

func (c changeCommand) confirm(cmd *cobra.Command, adm *admin.Admin, args []string, yes bool) error {
	if c.ask == nil || c.goesOn != nil && c.goesOn() && (yes || !isTerminal(cmd.InOrStdin())) {
		return nil
	}
	question, err := c.ask(cmd.Context(), adm, args)
	if err != nil || question == "" {
		return err
	}
	return confirm(cmd, yes, question)
}

func always() bool { return true }

func (r result) print(cmd *cobra.Command, asJSON bool) error {
	if asJSON {
		return printJSON(cmd.OutOrStdout(), r.value)
	}
	if key, ok := r.value.(op.Issuer); ok { // the standard output gets only the key, for scripts
		_, err := fmt.Fprintln(cmd.ErrOrStderr(), r.sentence)
		return errors.Join(err, printLine(cmd, "%s", key.Issued()))
	}
	if r.sentence == "" {
		return nil
	}
	return printLine(cmd, "%s", r.sentence)
}
