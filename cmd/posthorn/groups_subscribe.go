package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/op"
)

const groupsSubscribeMore = `Types and streams are patterns: order.placed, order.* or order.>. An event passes
a repeated filter if it passes one of its values.

A condition is an expression in SQL over e, the event (id, type, stream, key,
tags, payload, metadata, created_at), and s.params. It needs the role
posthorn_admin.`

type subscribeFlags struct {
	types, streams, keys, tags, requiredTags []string
	payload, condition, params               string
	expireAfter                              time.Duration
	formerly                                 []string
}

// filterFlags exclude --condition.
var filterFlags = []string{"type", "stream", "key", "tag", "required-tag", "payload"}

// add adds the flags that select events.
func (f *subscribeFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringArrayVar(&f.types, "type", nil, "a pattern of types; may be repeated")
	flags.StringArrayVar(&f.streams, "stream", nil, "a pattern of streams; may be repeated")
	flags.StringArrayVar(&f.keys, "key", nil, "a key; may be repeated")
	flags.StringArrayVar(&f.tags, "tag", nil, "a tag; an event needs one of them; may be repeated")
	flags.StringArrayVar(&f.requiredTags, "required-tag", nil, "a tag; an event needs all of them; may be repeated")
	flags.StringVar(&f.payload, "payload", "", "a JSON object that payloads contain")
	flags.StringVar(&f.condition, "condition", "", "an expression in SQL instead of filters")
	flags.StringVar(&f.params, "params", "", "a JSON object that the condition reads as s.params")
	for _, name := range filterFlags {
		cmd.MarkFlagsMutuallyExclusive("condition", name)
	}
}

func newGroupsSubscribe(a *app) *cobra.Command {
	var f subscribeFlags
	var wanted admin.Subscription
	cmd := changeCommand{
		about: aboutOf(op.PutSubscription, groupsSubscribeMore),
		json:  true,
		prepare: func(*cobra.Command, []string) (err error) {
			wanted, err = f.subscription()
			return err
		},
		do: func(ctx context.Context, adm *admin.Admin, args []string) (result, error) {
			id, err := adm.Subscribe(ctx, args[0], args[1], wanted)
			in := &op.PutSubscriptionInput{BySubscription: op.BySubscription{Group: args[0], Name: args[1]}}
			return result{op.PutSubscription.Done(in, op.SubscriptionID{}), op.SubscriptionID{ID: id}}, err
		},
	}.build(a)
	f.add(cmd)
	cmd.Flags().StringArrayVar(&f.formerly, "formerly", nil, "a name that it had before, from which it takes over; may be repeated")
	cmd.Flags().DurationVar(&f.expireAfter, "expire-after", 0, "remove it when its group was not consumed for that long (default never)")
	return cmd
}

func (f subscribeFlags) subscription() (admin.Subscription, error) {
	s := admin.Subscription{Condition: f.condition, ExpireAfter: f.expireAfter, Formerly: f.formerly}
	var err error
	if s.Params, err = document("params", []byte(f.params)); err != nil {
		return s, err
	}
	if f.condition == "" && s.Params != nil {
		return s, usageError{errors.New("--params needs --condition"), "filter by the content of payloads with --payload"}
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
