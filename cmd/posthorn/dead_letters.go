package main

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newDeadLetters(a *app) *cobra.Command {
	return holding(about{
		use:   "dead-letters",
		short: "See, redrive and purge events that failed for good",
	}, newDeadLettersList(a), newDeadLettersShow(a), newDeadLettersRedrive(a), newDeadLettersPurge(a))
}

// deadLetterFlags say which dead letters are meant.
type deadLetterFlags struct{ filter admin.DeadLetterFilter }

func (f *deadLetterFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.filter.Group, "group", "", "only of this group (default: all groups of the namespace)")
	flags.Int64SliceVar(&f.filter.IDs, "id", nil, "only these, by their ids")
	flags.StringVar(&f.filter.Type, "type", "", "only of events of this type")
	flags.StringVar(&f.filter.Error, "error", "", "only with this text in the error")
}

// confirm asks before a command does something to all dead letters that are
// meant, and says how many those are.
func (f *deadLetterFlags) confirm(cmd *cobra.Command, adm *admin.Admin, yes bool, verb string) error {
	if yes {
		return nil
	}
	n, err := adm.CountDeadLetters(cmd.Context(), f.filter)
	if err != nil {
		return err
	}
	return confirm(cmd, false, fmt.Sprintf(verb, n))
}

// chosen refuses to mean everything by accident.
func (f *deadLetterFlags) chosen(all bool) error {
	narrow := f.filter.Group != "" || len(f.filter.IDs) > 0 || f.filter.Type != "" || f.filter.Error != ""
	if !all && !narrow {
		return usageError{errors.New("which dead letters?"), "say --id, --type, --error, --group or --all"}
	}
	return nil
}

func newDeadLettersList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, oldest first",
		Example: `  posthorn dead-letters list
  posthorn dead-letters list --group billing --type order.placed --limit 10
  posthorn dead-letters list --json`,
		Args: cobra.NoArgs,
	}
	var f deadLetterFlags
	f.add(cmd)
	limitVar(cmd.Flags(), &f.filter.Limit, 100, mostListed, "list so many")
	numberVar(cmd.Flags(), &f.filter.Offset, "offset", 0, 0, mostInSQL, "after so many")
	var keepers keeperFlags
	keepers.add(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if !*asJSON {
			keepers = keeperFlags{} // payloads are not shown
		}
		return a.withDeadLetters(cmd.Context(), keepers, func(adm *admin.Admin) error {
			shown := f.filter.Limit
			f.filter.Limit++ // to see whether there are more
			letters, err := collect(adm.DeadLetters(cmd.Context(), f.filter))
			if err != nil {
				return err
			}
			if letters, err = cut(cmd, letters, shown); err != nil {
				return err
			}
			return deadLetterColumns.printOrJSON(cmd.OutOrStdout(), letters, *asJSON)
		})
	}
	return cmd
}

var deadLetterColumns = columns[admin.DeadLetter]{"id|group|event|type|attempts|failed at|reason|error", func(d admin.DeadLetter) []any {
	return []any{d.ID, d.Group, d.EventID, d.Type, d.Attempts, d.FailedAt, d.Reason, shorten(d.Error, 60)}
}}

func shorten(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

func newDeadLettersRedrive(a *app) *cobra.Command {
	return onDeadLetters{
		about: about{
			use:   "redrive",
			short: "Let groups try dead letters again",
			long: `Bring dead letters back: their groups are handed them again at once, and they
have all their attempts again.`,
			example: `  posthorn dead-letters redrive --id 7 --id 9
  posthorn dead-letters redrive --group billing --type order.placed
  posthorn dead-letters redrive --all --yes`,
		},
		question: "redrive %d dead letters", asksForAll: true,
		do: (*admin.Admin).Redrive, sentence: "redrove %d dead letters\n", result: "redriven",
	}.of(a)
}

func newDeadLettersPurge(a *app) *cobra.Command {
	return onDeadLetters{
		about: about{
			use:   "purge",
			short: "Delete dead letters for good",
			example: `  posthorn dead-letters purge --id 7
  posthorn dead-letters purge --group billing --yes`,
		},
		question: "delete %d dead letters for good",
		do:       (*admin.Admin).Purge, sentence: "purged %d dead letters\n", result: "purged",
	}.of(a)
}

// onDeadLetters is a command that does something to all dead letters that are meant.
type onDeadLetters struct {
	about
	question   string
	asksForAll bool // and not where some are chosen
	do         func(*admin.Admin, context.Context, admin.DeadLetterFilter) (int64, error)
	sentence   string
	result     string // the name of their number in JSON
}

func (d onDeadLetters) of(a *app) *cobra.Command {
	cmd := d.command(cobra.NoArgs)
	var f deadLetterFlags
	f.add(cmd)
	all := cmd.Flags().Bool("all", false, "all dead letters of the namespace")
	yes := yesFlag(cmd)
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := f.chosen(*all); err != nil {
			return err
		}
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			if err := f.confirm(cmd, adm, *yes || d.asksForAll && !*all, d.question); err != nil {
				return err
			}
			n, err := d.do(adm, cmd.Context(), f.filter)
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]int64{d.result: n})
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), d.sentence, n)
			return err
		})
	}
	return cmd
}
