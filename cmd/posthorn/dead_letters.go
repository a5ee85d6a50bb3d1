package main

import (
	"context"
	"errors"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func newDeadLetters(a *app) *cobra.Command {
	commands := []*cobra.Command{newDeadLettersList(a), newDeadLettersShow(a), newDeadLettersReasons(a), newDeadLettersRedriveEdited(a)}
	for _, action := range op.DeadLetterActions {
		commands = append(commands, newDeadLettersAction(a, action))
	}
	return parent(about{
		use:   "dead-letters",
		short: "Show, redrive, discard and purge dead letters, the events that failed for good",
	}, commands...)
}

func newDeadLettersList(a *app) *cobra.Command {
	var in op.ListDeadLettersInput
	cmd := listCommand[admin.DeadLetter]{
		about:   aboutOf(op.ListDeadLetters, timeHelp),
		limit:   &in.Paging.Limit,
		keepers: &keeperFlags{},
		list: func(adm *admin.Admin, ctx context.Context) ([]admin.DeadLetter, error) {
			return op.ListDeadLetters.Call(ctx, adm, &in)
		},
		columns: columns[admin.DeadLetter]{"id|group|event|type|attempts|failed at|reason|error", func(d admin.DeadLetter) []any {
			return []any{d.ID, d.Group, d.EventID, d.Type, d.Attempts, d.FailedAt, d.Reason, shorten(d.Error, 60)}
		}},
	}.build(a)
	addFlags(cmd.Flags(), &in)
	limitVar(cmd.Flags(), &in.Paging.Limit, 100, mostListed, "list so many")
	numberVar(cmd.Flags(), &in.Offset, "offset", 0, 0, mostInSQL, "after so many")
	return cmd
}

func newDeadLettersReasons(a *app) *cobra.Command {
	var in op.CountDeadLettersInput
	cmd := listCommand[admin.DeadLetterReason]{
		about: aboutOf(op.CountDeadLetters, ""),
		limit: &in.Limit,
		list: func(adm *admin.Admin, ctx context.Context) ([]admin.DeadLetterReason, error) {
			return op.CountDeadLetters.Call(ctx, adm, &in)
		},
		columns: columns[admin.DeadLetterReason]{"group|handler|dead letters|reason|cause|last|last id", func(r admin.DeadLetterReason) []any {
			return []any{r.Group, r.Subscription, r.DeadLetters, r.Reason, shorten(r.Cause, 60), r.LastFailedAt, r.LastID}
		}},
	}.build(a)
	addFlags(cmd.Flags(), &in)
	limitVar(cmd.Flags(), &in.Limit, 100, mostListed, "list so many")
	return cmd
}

// shorten cuts the first line of a text to a number of characters.
func shorten(text string, most int) string {
	text = firstLine(text)
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// newDeadLettersAction makes the command of an action on all selected dead letters.
func newDeadLettersAction(a *app, action op.DeadLetterAction) *cobra.Command {
	many := action.Many()
	in := new(op.ChosenInput)
	cmd := changeCommand{
		about: aboutOf(many, timeHelp),
		json:  true,
		prepare: func(*cobra.Command, []string) error {
			if in.Check() != nil {
				return usageError{errors.New("which dead letters?"), "select them with --id, --type, --error, --group, another filter or --all"}
			}
			return nil
		},
		ask:    func(ctx context.Context, adm *admin.Admin, _ []string) (string, error) { return many.Ask(ctx, adm, in) },
		goesOn: func() bool { return action.Keeps && !in.Body.All },
		do: func(ctx context.Context, adm *admin.Admin, _ []string) (result, error) {
			n, err := many.Call(ctx, adm, in)
			return result{many.Done(in, n), map[string]int64{action.Result: n}}, err
		},
	}.build(a)
	addFlags(cmd.Flags(), in)
	return cmd
}

func newDeadLettersRedriveEdited(a *app) *cobra.Command {
	in := new(op.RedriveEditedInput)
	return changeCommand{
		about: aboutOf(op.RedriveEditedDeadLetter, "PAYLOAD is JSON; - reads it from the standard input. The command prints the id of the event."),
		json:  true,
		prepare: func(cmd *cobra.Command, args []string) (err error) {
			if err := readArguments(op.RedriveEditedDeadLetter, in, args); err != nil {
				return err
			}
			in.Body.Payload, err = payload(input{cmd.Context(), cmd.InOrStdin()}, args[1:])
			return err
		},
		do: func(ctx context.Context, adm *admin.Admin, _ []string) (result, error) {
			out, err := op.RedriveEditedDeadLetter.Call(ctx, adm, in)
			return result{out.String(), out}, err
		},
	}.build(a)
}
