package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
)

const groupsSubscribeLong = `Make a subscription of a group, or change what it wants: NAME gets the events
that pass all the filters given, or those of which the condition holds. The group
is made if there is none, and hands out only what one of its subscriptions wants.

Types and streams are patterns: order.placed, order.* or order.>. A filter that
may be repeated lets pass what any of its values does.

A condition is an expression in SQL over e, the event (id, type, stream, key,
tags, payload, metadata, created_at), and s.params. It takes the role
posthorn_admin.`

const groupsSubscribeExample = `  posthorn groups subscribe billing orders --type 'order.*'
  posthorn groups subscribe billing shop-7 --type order.placed --payload '{"shop": 7}'
  posthorn groups subscribe billing large --condition "(e.payload->>'cents')::int > (s.params->>'over')::int" --params '{"over": 100000}'`

type subscribeFlags struct {
	types, streams, keys, tags, requiredTags []string
	payload, condition, params               string
	expireAfter                              time.Duration
}

// filterFlags are those that do not go with --condition.
var filterFlags = []string{"type", "stream", "key", "tag", "required-tag", "payload"}

func newGroupsSubscribe(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "subscribe GROUP NAME",
		Short:   "Make a subscription of a group, or change what it wants",
		Long:    groupsSubscribeLong,
		Example: groupsSubscribeExample,
		Args:    cobra.ExactArgs(2),
	}
	var f subscribeFlags
	f.add(cmd)
	cmd.Flags().DurationVar(&f.expireAfter, "expire-after", 0, "remove it when its group was not consumed for that long (default never)")
	asJSON := jsonFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		want, err := f.subscription()
		if err != nil {
			return err
		}
		return a.withAdmin(cmd.Context(), func(adm *admin.Admin) error {
			id, err := adm.Subscribe(cmd.Context(), args[0], args[1], want)
			if err != nil {
				return err
			}
			if *asJSON {
				return printJSON(cmd.OutOrStdout(), map[string]int64{"id": id})
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "subscription %s of group %s is defined\n", args[1], args[0])
			return err
		})
	}
	return cmd
}

func (f *subscribeFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.types, "type", nil, "a pattern of types; may be repeated")
	flags.StringArrayVar(&f.streams, "stream", nil, "a pattern of streams; may be repeated")
	flags.StringArrayVar(&f.keys, "key", nil, "a key; may be repeated")
	flags.StringArrayVar(&f.tags, "tag", nil, "a tag, one of which has to be there; may be repeated")
	flags.StringArrayVar(&f.requiredTags, "required-tag", nil, "a tag that has to be there; may be repeated")
	flags.StringVar(&f.payload, "payload", "", "a JSON object that payloads contain")
	flags.StringVar(&f.condition, "condition", "", "an expression in SQL instead of filters")
	flags.StringVar(&f.params, "params", "", "a JSON object that the condition reads as s.params")
	for _, name := range filterFlags {
		cmd.MarkFlagsMutuallyExclusive("condition", name)
	}
}

func (f subscribeFlags) subscription() (admin.Subscription, error) {
	s := admin.Subscription{Condition: f.condition, ExpireAfter: f.expireAfter}
	var err error
	if s.Params, err = document("params", []byte(f.params)); err != nil {
		return s, err
	}
	if f.condition == "" && s.Params != nil {
		return s, usageError{errors.New("--params needs --condition"), "say with --payload what payloads contain"}
	}
	if f.expireAfter != 0 && f.expireAfter < time.Second {
		return s, usageError{errors.New("--expire-after must be a second or more"), "leave it out for never"}
	}
	payload, err := document("payload", []byte(f.payload))
	if err != nil {
		return s, err
	}
	s.Filter, err = json.Marshal(struct {
		Types        []string        `json:"type,omitempty"`
		Streams      []string        `json:"stream,omitempty"`
		Keys         []string        `json:"key,omitempty"`
		Tags         []string        `json:"tags_any,omitempty"`
		RequiredTags []string        `json:"tags_all,omitempty"`
		Payload      json.RawMessage `json:"payload,omitempty"`
	}{f.types, f.streams, f.keys, f.tags, f.requiredTags, payload})
	return s, err
}

var groupsUnsubscribe = doing{
	about: about{
		use:   "unsubscribe GROUP NAME",
		short: "Remove a subscription with what is owed to it",
		long: `Remove a subscription of a group with the events that are owed to it. Its dead
letters stay. The group goes on handing out only what its other subscriptions
want.`,
		example: "  posthorn groups unsubscribe billing large --yes",
	},
	json: true,
	ask: func(_ context.Context, _ *admin.Admin, args []string) (string, error) {
		return fmt.Sprintf("remove subscription %s of group %s with what is owed to it", args[1], args[0]), nil
	},
	do: func(ctx context.Context, adm *admin.Admin, args []string) (outcome, error) {
		owed, err := adm.Unsubscribe(ctx, args[0], args[1])
		said := fmt.Sprintf("removed subscription %s of group %s, to which %d events were owed", args[1], args[0], owed)
		return outcome{said, map[string]int64{"owed": owed}}, err
	},
}
