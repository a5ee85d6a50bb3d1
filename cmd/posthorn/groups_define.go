package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn"
	"github.com/posthorn/posthorn/admin"
)

const groupsDefineLong = `Make a group, or change the policy of one. What is not given stays as it is.

A failed event is tried again after the delays that are listed, or after delays
that grow from --backoff-from to --backoff-to; when its attempts have run out it
becomes a dead letter. In ordered groups it blocks the events after it until
then, unless --on-failure is set_aside.

` + timeHelp

const groupsDefineExample = `  posthorn groups define billing
  posthorn groups define mail --order key --attempts 10 --from beginning
  posthorn groups define mail --delays 1s,1m,1h`

type groupFlags struct {
	settings     admin.GroupSettings
	attempts     int
	delays       []time.Duration
	from, to     time.Duration // of the backoff
	start        string
	changesTries bool
}

func newGroupsDefine(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "define NAME",
		Short:   "Make a group, or change its policy",
		Long:    groupsDefineLong,
		Example: groupsDefineExample,
		Args:    cobra.ExactArgs(1),
	}
	var f groupFlags
	flags := cmd.Flags()
	flags.StringVar(&f.settings.Order, "order", "", "none, key, stream or total (default none)")
	numberVar(flags, &f.settings.Slots, "slots", 0, 1, 1024, "how many keys may be worked on at once, with --order key (default 16)")
	numberVar(flags, &f.attempts, "attempts", 0, 0, 999_999_999, "deliveries before an event becomes a dead letter, 0 for no limit (default 5)")
	flags.DurationSliceVar(&f.delays, "delays", nil, "delays before each further attempt")
	flags.DurationVar(&f.from, "backoff-from", 0, "the first delay (default 1s)")
	flags.DurationVar(&f.to, "backoff-to", 0, "the longest delay (default 5m0s)")
	flags.StringVar(&f.settings.OnFailure, "on-failure", "", "block or set_aside, in ordered groups (default block)")
	flags.StringVar(&f.start, "from", "", "where a new group begins: now, beginning or a TIME (default now)")
	cmd.MarkFlagsMutuallyExclusive("delays", "backoff-from")
	cmd.MarkFlagsMutuallyExclusive("delays", "backoff-to")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, name := range []string{"slots", "backoff-from", "backoff-to"} {
			if flag := cmd.Flags().Lookup(name); flag.Changed && flag.Value.String() == flag.DefValue {
				return usageError{fmt.Errorf("--%s must be more than 0", name), "leave it out to keep what is, or for the default"}
			}
		}
		delays := slices.Concat(f.delays, []time.Duration{f.from, f.to})
		if slices.ContainsFunc(delays, func(d time.Duration) bool { return d < 0 }) {
			return usageError{errors.New("a delay cannot be negative"), "write periods like 1s,1m,1h"}
		}
		f.changesTries = cmd.Flags().Changed("attempts")
		return a.defineGroup(cmd, args[0], f)
	}
	return cmd
}

func (a *app) defineGroup(cmd *cobra.Command, name string, f groupFlags) error {
	ctx := cmd.Context()
	settings := f.settings
	for _, delay := range f.delays {
		settings.Delays = append(settings.Delays, inSQL(delay))
	}
	if f.changesTries {
		settings.Attempts = &f.attempts
	}
	if f.from != 0 || f.to != 0 {
		settings.Backoff = &admin.BackoffSettings{From: inSQL(f.from), To: inSQL(f.to)}
	}
	return a.withAdmin(ctx, func(adm *admin.Admin) error {
		if f.start != "" {
			start, err := parseMoment(ctx, adm, f.start)
			if err != nil {
				return err
			}
			settings.Start = momentInSQL(start)
		}
		if err := adm.DefineGroup(ctx, name, settings); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "group %s is defined\n", name)
		return err
	})
}

// inSQL is a period as Postgres reads it; none if it is 0.
func inSQL(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return fmt.Sprintf("%d microseconds", d.Microseconds())
}

// momentInSQL is a place in the log as the settings of a group have it.
func momentInSQL(m posthorn.Moment) string {
	switch m {
	case posthorn.Beginning:
		return "beginning"
	case posthorn.End:
		return "end"
	}
	return m.Time.Format(time.RFC3339Nano)
}
