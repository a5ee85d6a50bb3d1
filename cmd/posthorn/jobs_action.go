package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

// newJobsAction makes the command of an action on jobs: on those with the ids that are its
// arguments, or on all that its flags select.
func newJobsAction[In any, S op.Selection[In]](a *app, action op.JobAction[In, S]) *cobra.Command {
	many := action.Many()
	in := S(new(In))
	var ids []int64
	var cmd *cobra.Command
	cmd = changeCommand{
		about: aboutOf(many, "Jobs are named by their ids, or selected by --status and --tag."),
		prepare: func(_ *cobra.Command, args []string) error {
			ids = nil
			for _, arg := range args {
				id, err := jobID(arg)
				if err != nil {
					return err
				}
				ids = append(ids, id)
			}
			selected := in.Selected()
			switch selects := selected.Status != ""; {
			case len(selected.Tags) > 0 && !selects:
				return usageError{errors.New("which of the jobs with these tags?"), "add --status: pending, processing or failed"}
			case selects == (len(ids) > 0):
				return usageError{errors.New("which jobs?"), "name them by their ids, or select them with --status and --tag"}
			}
			return nil
		},
		ask: func(ctx context.Context, adm *admin.Admin, args []string) (string, error) {
			switch {
			case len(ids) == 0:
				return many.Ask(ctx, adm, in)
			case action.Verb != "delete":
				return "", nil
			case len(ids) == 1:
				return "delete job " + args[0], nil
			}
			return fmt.Sprintf("delete %d jobs", len(ids)), nil
		},
		goesOn: func() bool {
			selected := in.Selected()
			return action.Keeps && (len(ids) > 0 || len(selected.Tags) > 0) // otherwise it takes all of a namespace
		},
		do: func(ctx context.Context, adm *admin.Admin, _ []string) (result, error) {
			if len(ids) == 0 {
				n, err := many.Call(ctx, adm, in)
				return result{sentence: many.Done(in, n)}, err
			}
			for _, id := range ids {
				if err := action.DoOne(adm, ctx, id, in); err != nil {
					return result{}, err
				}
				if err := printLine(cmd, action.OneSentence, id); err != nil {
					return result{}, err
				}
			}
			return result{}, nil
		},
	}.build(a)
	addFlags(cmd.Flags(), in)
	return cmd
}
