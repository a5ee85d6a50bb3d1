package main

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/internal/pg"
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
	config       pg.GroupConfig
	attempts     int
	delays       []time.Duration
	backoff      pg.Backoff
	from         string
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
	flags.StringVar(&f.config.Order, "order", "", "none, key, stream or total (default none)")
	numberVar(flags, &f.config.Slots, "slots", 0, 1, 1024, "how many keys may be worked on at once, with --order key (default 16)")
	numberVar(flags, &f.attempts, "attempts", 0, 0, 999_999_999, "deliveries before an event becomes a dead letter, 0 for no limit (default 5)")
	flags.DurationSliceVar(&f.delays, "delays", nil, "delays before each further attempt")
	flags.DurationVar(&f.backoff.From, "backoff-from", 0, "the first delay (default 1s)")
	flags.DurationVar(&f.backoff.To, "backoff-to", 0, "the longest delay (default 5m0s)")
	flags.StringVar(&f.config.OnFailure, "on-failure", "", "block or set_aside, in ordered groups (default block)")
	flags.StringVar(&f.from, "from", "", "where a new group begins: now, beginning or a TIME (default now)")
	cmd.MarkFlagsMutuallyExclusive("delays", "backoff-from")
	cmd.MarkFlagsMutuallyExclusive("delays", "backoff-to")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, name := range []string{"slots", "backoff-from", "backoff-to"} {
			if flag := cmd.Flags().Lookup(name); flag.Changed && flag.Value.String() == flag.DefValue {
				return usageError{fmt.Errorf("--%s must be more than 0", name), "leave it out to keep what is, or for the default"}
			}
		}
		delays := slices.Concat(f.delays, []time.Duration{f.backoff.From, f.backoff.To})
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
	return a.withDatabase(ctx, func(conn *pgx.Conn) error {
		config := f.config
		config.Delays = f.delays
		if f.changesTries {
			config.Attempts = &f.attempts
		}
		if f.backoff != (pg.Backoff{}) {
			config.Backoff = &f.backoff
		}
		if f.from != "" {
			start, err := parseMoment(ctx, conn, f.from)
			if err != nil {
				return err
			}
			config.Start = &start
		}
		if _, err := pg.DefineGroup(ctx, conn, a.namespace, name, config); err != nil {
			return err
		}
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "group %s is defined\n", name)
		return err
	})
}
