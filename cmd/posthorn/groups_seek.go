package main

import (
	"context"
	"fmt"

	"github.com/posthorn/posthorn/admin"
)

var groupsSeek = doing{
	about: about{
		use:   "seek NAME beginning|end|TIME",
		short: "Move a group to a time, the beginning or the end",
		long: `Move a group: it is handed every event published from then on, again if it had
them before. Whoever works for the group now loses the lease; events that have
failed stay owed to it.

` + timeHelp,
		example: `  posthorn groups seek billing -1h
  posthorn groups seek billing 2026-01-31
  posthorn groups seek billing end`,
	},
	do: func(ctx context.Context, adm *admin.Admin, args []string) (outcome, error) {
		to, err := parseMoment(ctx, adm, args[1])
		if err != nil {
			return outcome{}, err
		}
		where := args[1]
		if to.InfinityModifier == 0 {
			where = formatTime(to.Time)
		}
		return outcome{sentence: fmt.Sprintf("group %s stands at %s", args[0], where)}, adm.Seek(ctx, args[0], to)
	},
}
