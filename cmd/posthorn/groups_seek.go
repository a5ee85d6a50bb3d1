package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

func newGroupsSeek(a *app) *cobra.Command {
	var in *op.SeekInput // found once, since -1h means another time after an answer
	find := func(ctx context.Context, adm *admin.Admin, args []string) error {
		if in != nil {
			return nil
		}
		to, err := parseMoment(ctx, adm, args[1])
		if err == nil {
			in = &op.SeekInput{ByName: op.ByName{Name: args[0]}}
			in.Body.To = momentText(to)
		}
		return err
	}
	return changeCommand{
		about: aboutOf(op.SeekGroup, "At a terminal it asks first, and says how many events that means.\n\n"+timeHelp),
		ask: func(ctx context.Context, adm *admin.Admin, args []string) (string, error) {
			if err := find(ctx, adm, args); err != nil {
				return "", err
			}
			return op.SeekGroup.Ask(ctx, adm, in)
		},
		goesOn: always,
		do: func(ctx context.Context, adm *admin.Admin, args []string) (result, error) {
			if err := find(ctx, adm, args); err != nil {
				return result{}, err
			}
			out, err := op.SeekGroup.Call(ctx, adm, in)
			return result{sentence: op.SeekGroup.Done(in, out)}, err
		},
	}.build(a)
}

func newGroupsPreview(a *app) *cobra.Command {
	in := &op.PreviewSeekInput{}
	place := ""
	cmd := showCommand[admin.SeekPreview]{
		about: aboutOf(op.PreviewSeekGroup, timeHelp),
		load: func(ctx context.Context, adm *admin.Admin, name string) (p admin.SeekPreview, err error) {
			to, err := parseMoment(ctx, adm, place)
			if err != nil {
				return p, err
			}
			in.Name, in.To = name, momentText(to)
			return op.PreviewSeekGroup.Call(ctx, adm, in)
		},
		fields: func(field fields, p admin.SeekPreview) {
			field("from", in.To)
			field("events again", p.Again)
			field("events passed over", p.Skipped)
			field("leases lost", p.Leases)
			field("has subscriptions", p.HasSubscriptions)
		},
	}.build(a)
	cmd.PreRun = func(_ *cobra.Command, args []string) { place = args[1] }
	return cmd
}
