package main

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newDeadLetters(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "dead-letters",
		Short: "See, redrive and purge events that failed for good",
		Args:  cobra.NoArgs,
		RunE:  help,
	}
	cmd.AddCommand(
		newDeadLettersList(a),
		newDeadLettersShow(a),
		newDeadLettersRedrive(a),
		newDeadLettersPurge(a),
	)
	return cmd
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
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), append([]admin.DeadLetter{}, letters...))
			}
			t := newTable(cmd.OutOrStdout(), "id", "group", "event", "type", "attempts", "failed at", "reason", "error")
			for _, d := range letters {
				t.row(d.ID, d.Group, d.EventID, d.Type, d.Attempts, d.FailedAt, d.Reason, shorten(d.Error, 60))
			}
			return t.flush()
		})
	}
	return cmd
}

func shorten(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}
