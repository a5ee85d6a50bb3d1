package main

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newDeadLetters(a *app) *cobra.Command {
	return parent(about{
		use:   "dead-letters",
		short: "Show, redrive, discard and purge dead letters, the events that failed for good",
	},
		newDeadLettersList(a),
		newDeadLettersShow(a),
		newDeadLettersRedrive(a),
		newDeadLettersDiscard(a),
		newDeadLettersRecover(a),
		newDeadLettersPurge(a),
	)
}

func newDeadLettersList(a *app) *cobra.Command {
	var f admin.DeadLetterFilter
	cmd := listCommand[admin.DeadLetter]{
		about: about{
			use:   "list",
			short: "List dead letters, oldest first",
			long:  "List dead letters, oldest first.\n\n" + timeHelp,
			example: `  posthorn dead-letters list
  posthorn dead-letters list --group billing --type order.placed --limit 10
  posthorn dead-letters list --json`,
		},
		limit:   &f.Limit,
		keepers: &keeperFlags{},
		list: func(adm *admin.Admin, ctx context.Context) ([]admin.DeadLetter, error) {
			return collect(adm.DeadLetters(ctx, f))
		},
		columns: columns[admin.DeadLetter]{"id|group|event|type|attempts|failed at|reason|error", func(d admin.DeadLetter) []any {
			return []any{d.ID, d.Group, d.EventID, d.Type, d.Attempts, d.FailedAt, d.Reason, shorten(d.Error, 60)}
		}},
	}.build(a)
	addFlags(cmd.Flags(), &f)
	limitVar(cmd.Flags(), &f.Limit, 100, mostListed, "list so many")
	numberVar(cmd.Flags(), &f.Offset, "offset", 0, 0, mostInSQL, "after so many")
	return cmd
}

// collect reads an iterator up to its end or its first error.
func collect[T any](all iter.Seq2[T, error]) ([]T, error) {
	var list []T
	for item, err := range all {
		if err != nil {
			return nil, err
		}
		list = append(list, item)
	}
	return list, nil
}

// shorten cuts a text to a number of characters.
func shorten(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

func newDeadLettersRedrive(a *app) *cobra.Command {
	return bulkCommand{
		about: about{
			use:   "redrive",
			short: "Retry dead letters",
			long: `Return dead letters to their groups, which get them again at once and with all their
attempts.`,
			example: `  posthorn dead-letters redrive --id 7 --id 9
  posthorn dead-letters redrive --group billing --type order.placed
  posthorn dead-letters redrive --all --yes`,
		},
		question: "redrive %d dead letters", keeps: true,
		do: (*admin.Admin).Redrive, sentence: "redrove %d dead letters", result: "redriven",
	}.build(a)
}

func newDeadLettersDiscard(a *app) *cobra.Command {
	return bulkCommand{
		about: about{
			use:   "discard",
			short: "Discard dead letters: they are neither listed nor counted any more",
			long: `Discard dead letters: they are neither listed nor counted any more. They are
deleted after the retention of events, unless posthorn dead-letters recover takes
the mark away before.`,
			example: `  posthorn dead-letters discard --group billing --type order.placed
  posthorn dead-letters discard --failed-before -24h`,
		},
		question: "discard %d dead letters", keeps: true,
		do: (*admin.Admin).Discard, sentence: "discarded %d dead letters", result: "discarded",
	}.build(a)
}

func newDeadLettersRecover(a *app) *cobra.Command {
	return bulkCommand{
		about: about{
			use:     "recover",
			short:   "Recover discarded dead letters",
			example: "  posthorn dead-letters recover --group billing",
		},
		question: "recover %d dead letters", keeps: true, discarded: true,
		do: (*admin.Admin).Recover, sentence: "recovered %d dead letters", result: "recovered",
	}.build(a)
}

func newDeadLettersPurge(a *app) *cobra.Command {
	return bulkCommand{
		about: about{
			use:   "purge",
			short: "Delete dead letters for good",
			example: `  posthorn dead-letters purge --id 7
  posthorn dead-letters purge --group billing --yes`,
		},
		question: "delete %d dead letters for good",
		do:       (*admin.Admin).Purge, sentence: "purged %d dead letters", result: "purged",
	}.build(a)
}

// bulkCommand is a command that does something to all selected dead letters.
type bulkCommand struct {
	about
	question  string // with the number of dead letters, like the sentence
	keeps     bool   // it deletes nothing
	discarded bool   // it is about discarded dead letters
	do        func(*admin.Admin, context.Context, admin.DeadLetterFilter) (int64, error)
	sentence  string
	result    string // the name of the number in JSON
}

func (b bulkCommand) build(a *app) *cobra.Command {
	var f admin.DeadLetterFilter
	var all bool
	cmd := changeCommand{
		about: b.about,
		json:  true,
		prepare: func(*cobra.Command, []string) error {
			if !all && !f.Selects() {
				return usageError{errors.New("which dead letters?"), "select them with --id, --type, --error, --group, another filter or --all"}
			}
			return nil
		},
		ask: func(ctx context.Context, adm *admin.Admin, _ []string) (string, error) {
			if b.keeps && !all && len(f.IDs) > 0 {
				return "", nil
			}
			counted := f
			counted.Discarded = b.discarded || f.Discarded && !b.keeps
			n, err := adm.CountDeadLetters(ctx, counted)
			return fmt.Sprintf(b.question, n), err
		},
		goesOn: func() bool { return b.keeps && !all },
		do: func(ctx context.Context, adm *admin.Admin, _ []string) (result, error) {
			n, err := b.do(adm, ctx, f)
			return result{fmt.Sprintf(b.sentence, n), map[string]int64{b.result: n}}, err
		},
	}.build(a)
	addFlags(cmd.Flags(), &f)
	cmd.Flags().BoolVar(&all, "all", false, "all dead letters of the namespace")
	return cmd
}
