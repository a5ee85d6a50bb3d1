package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

const groupsDefineMore = `Flags that are left out change nothing.

A failed event is retried after the delays that are listed, or after delays that
grow from --backoff-from to --backoff-to; when it has used up its attempts, it
becomes a dead letter. In an ordered group it blocks the events after it until
then, unless --on-failure is set_aside.

` + timeHelp

type groupFlags struct {
	settings               admin.GroupSettings
	attempts               int
	delays                 []time.Duration
	backoffFrom, backoffTo time.Duration
	start                  string
}

func newGroupsDefine(a *app) *cobra.Command {
	var f groupFlags
	cmd := changeCommand{
		about:   aboutOf(op.DefineGroup, groupsDefineMore),
		prepare: f.prepare,
		do: func(ctx context.Context, adm *admin.Admin, args []string) (result, error) {
			if f.start != "" {
				start, err := parseMoment(ctx, adm, f.start)
				if err != nil {
					return result{}, err
				}
				f.settings.Start = momentText(start)
			}
			in := &op.DefineGroupInput{ByName: op.ByName{Name: args[0]}, Body: &f.settings}
			out, err := op.DefineGroup.Call(ctx, adm, in)
			return result{sentence: op.DefineGroup.Sentence(in, out)}, err
		},
	}.build(a)
	flags := cmd.Flags()
	flags.StringVar(&f.settings.Order, "order", "", "none, key, stream or total (default none)")
	numberVar(flags, &f.settings.Slots, "slots", 0, 1, 1024, "how many keys may be worked on at once, with --order key (default 16)")
	numberVar(flags, &f.attempts, "attempts", 0, 0, 999_999_999, "attempts before an event becomes a dead letter, 0 for no limit (default 5)")
	flags.DurationSliceVar(&f.delays, "delays", nil, "delays before each further attempt")
	flags.DurationVar(&f.backoffFrom, "backoff-from", 0, "the first delay (default 1s)")
	flags.DurationVar(&f.backoffTo, "backoff-to", 0, "the longest delay (default 5m0s)")
	flags.StringVar(&f.settings.OnFailure, "on-failure", "", "block or set_aside, in ordered groups (default block)")
	flags.StringVar(&f.start, "from", "", "where a new group begins: now, beginning or a TIME (default now)")
	cmd.MarkFlagsMutuallyExclusive("delays", "backoff-from")
	cmd.MarkFlagsMutuallyExclusive("delays", "backoff-to")
	return cmd
}

// prepare checks the flags and completes the settings.
func (f *groupFlags) prepare(cmd *cobra.Command, _ []string) error {
	for _, name := range []string{"slots", "backoff-from", "backoff-to"} {
		if flag := cmd.Flags().Lookup(name); flag.Changed && flag.Value.String() == flag.DefValue {
			return usageError{fmt.Errorf("--%s must be more than 0", name), "leave it out to keep the present value, or for the default"}
		}
	}
	delays := slices.Concat(f.delays, []time.Duration{f.backoffFrom, f.backoffTo})
	if slices.ContainsFunc(delays, func(d time.Duration) bool { return d < 0 }) {
		return usageError{errors.New("a delay cannot be negative"), "write periods like 1s,1m,1h"}
	}
	for _, delay := range f.delays {
		f.settings.Delays = append(f.settings.Delays, periodInSQL(delay))
	}
	if cmd.Flags().Changed("attempts") {
		f.settings.Attempts = &f.attempts
	}
	if f.backoffFrom != 0 || f.backoffTo != 0 {
		f.settings.Backoff = &admin.BackoffSettings{From: periodInSQL(f.backoffFrom), To: periodInSQL(f.backoffTo)}
	}
	return nil
}

// periodInSQL formats a period for Postgres; a period of zero is "".
func periodInSQL(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return fmt.Sprintf("%d microseconds", d.Microseconds())
}

// momentText formats a place in the log for an operation.
func momentText(m posthorn.Moment) string {
	switch m {
	case posthorn.Beginning:
		return "beginning"
	case posthorn.End:
		return "end"
	}
	return m.Time.Format(time.RFC3339Nano)
}
