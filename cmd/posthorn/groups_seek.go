package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

func newGroupsSeek(a *app) *cobra.Command {
	var to admin.Moment // found once, since -1h means another time after an answer
	find := func(ctx context.Context, adm *admin.Admin, place string) (where string, err error) {
		if !to.Valid {
			to, err = parseMoment(ctx, adm, place)
		}
		if to.InfinityModifier == 0 {
			place = formatTime(to.Time)
		}
		return place, err
	}
	return changeCommand{
		about: about{
			use:   "seek NAME beginning|end|TIME",
			short: "Move a group to a time, the beginning or the end",
			long: `Move a group. It gets every event that was published from then on, including those
that it has handled before. Its leases end: the answers of workers that have one
are refused. Failed events are still retried.

At a terminal it asks first, and says how many events that means.

` + timeHelp,
			example: `  posthorn groups seek billing -1h
  posthorn groups seek billing 2026-01-31
  posthorn groups seek billing end --yes`,
		},
		ask: func(ctx context.Context, adm *admin.Admin, args []string) (string, error) {
			where, err := find(ctx, adm, args[1])
			if err != nil {
				return "", err
			}
			p, err := adm.PreviewSeek(ctx, args[0], to)
			return fmt.Sprintf("move group %s to %s: %s events come again, %s are passed over, workers lose %d leases",
				args[0], where, estimated(p.Again), estimated(p.Skipped), p.Leases), err
		},
		goesOn: always,
		do: func(ctx context.Context, adm *admin.Admin, args []string) (result, error) {
			where, err := find(ctx, adm, args[1])
			if err != nil {
				return result{}, err
			}
			return result{sentence: fmt.Sprintf("group %s stands at %s", args[0], where)}, adm.Seek(ctx, args[0], to)
		},
	}.build(a)
}

// estimated is a number of events in the log, which is estimated beyond 10,000.
func estimated(n int64) string {
	if n >= 10000 {
		return fmt.Sprintf("about %d", n)
	}
	return fmt.Sprint(n)
}
