package op

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/internal/pg"
)

var subscriptions = Topic{"subscriptions", "subscription", "billing large"}

// ListSubscriptionsInput names a group.
type ListSubscriptionsInput struct {
	Namespace
	Group string `query:"group" required:"true" doc:"The name of the group"`
}

const withGroup = "they are shown with their group"

var ListSubscriptions = Op[ListSubscriptionsInput, []admin.SubscriptionStatus]{
	About: About{
		Topic: subscriptions, Verb: "list", Scope: Read,
		Does:    "List the subscriptions of a group",
		More:    "Each has its filter or condition, and the number of its retries.",
		Without: map[Face]string{Command: withGroup, Page: withGroup},
	},
	Call: func(ctx context.Context, a *admin.Admin, in *ListSubscriptionsInput) ([]admin.SubscriptionStatus, error) {
		return a.Subscriptions(ctx, in.Group)
	},
}

// BySubscription is part of the inputs of operations on a subscription.
type BySubscription struct {
	Namespace
	Group string `path:"group" doc:"The name of the group"`
	Name  string `path:"name" doc:"The name of the resource"`
}

// PutSubscriptionInput is a whole subscription.
type PutSubscriptionInput struct {
	BySubscription
	Body struct {
		Filter      map[string]json.RawMessage `json:"filter,omitempty" doc:"type, stream, key, tags_any, tags_all and payload; all fields that it has must match. A list in type or stream has up to 100 elements, in another field up to 1,000. Default: every event"`
		Condition   string                     `json:"conditions_sql,omitempty" doc:"Instead of a filter: an SQL expression over e and s. Needs the scope admin"`
		Params      map[string]json.RawMessage `json:"params,omitempty" doc:"The parameters of the condition"`
		ExpireAfter float64                    `json:"expire_after_seconds,omitempty" minimum:"0" doc:"The subscription is removed when its group was not read for this time; 0 for never"`
		Formerly    []string                   `json:"formerly,omitempty" maxItems:"100" doc:"Names that the subscription had before: it takes over the events that are owed to them, and they mean its name from now on"`
	}
}

// SubscriptionID is the id of a subscription.
type SubscriptionID struct {
	ID int64 `json:"id" doc:"The id of the subscription"`
}

var PutSubscription = Op[PutSubscriptionInput, SubscriptionID]{
	About: About{
		Topic: subscriptions, Verb: "put", Scope: Consume, Go: "Subscribe", SQL: "subscribe", Command: "groups subscribe GROUP NAME",
		Does: "Make a subscription of a group, or change its filter",
		More: "The group is made if it does not exist. A group with subscriptions hands out only events that match one of them.",
		Example: "posthorn groups subscribe billing orders --type 'order.*'\n" +
			`posthorn groups subscribe billing shop-7 --type order.placed --payload '{"shop": 7}'` + "\n" +
			`posthorn groups subscribe billing large --condition "(e.payload->>'cents')::int > (s.params->>'over')::int" --params '{"over": 100000}'`,
		ByHand: map[Face]string{Command: "each part of a filter has a flag"},
	},
	Call: putSubscription,
	Load: loadSubscription,
	Done: func(in *PutSubscriptionInput, _ SubscriptionID) string {
		return fmt.Sprintf("subscription %s of group %s is defined", in.Name, in.Group)
	},
}

func putSubscription(ctx context.Context, a *admin.Admin, in *PutSubscriptionInput) (out SubscriptionID, err error) {
	b := in.Body
	s, err := filterOf(b.Filter, b.Condition, b.Params)
	if err != nil {
		return out, err
	}
	s.ExpireAfter, s.Formerly = time.Duration(b.ExpireAfter*float64(time.Second)), b.Formerly
	out.ID, err = a.Subscribe(ctx, in.Group, in.Name, s)
	return out, err
}

// filterOf is a subscription with a filter, or with a condition and its parameters.
func filterOf(filter map[string]json.RawMessage, condition string, params map[string]json.RawMessage) (s admin.Subscription, err error) {
	s.Condition = condition
	if condition != "" && filter != nil {
		return s, pg.Invalid("there are both filter and conditions_sql", "Leave one of them out.")
	}
	if _, ok := filter["conditions_sql"]; ok {
		return s, pg.Invalid("conditions_sql is not a field of a filter", "It stands beside the filter, not in it.")
	}
	if s.Filter, err = asJSON(filter); err != nil {
		return s, err
	}
	s.Params, err = asJSON(params)
	return s, err
}

// asJSON makes a document of an object; of nil, none.
func asJSON(object map[string]json.RawMessage) (json.RawMessage, error) {
	if object == nil {
		return nil, nil
	}
	return json.Marshal(object)
}

func loadSubscription(ctx context.Context, a *admin.Admin, in *PutSubscriptionInput) error {
	all, err := a.Subscriptions(ctx, in.Group)
	i := slices.IndexFunc(all, func(s admin.SubscriptionStatus) bool { return s.Name == in.Name })
	if err != nil || i < 0 { // a new one
		return err
	}
	s, b := all[i], &in.Body
	b.Condition, b.ExpireAfter = s.Condition, s.ExpireAfterSeconds
	if s.Condition != "" {
		return json.Unmarshal(s.Params, &b.Params)
	}
	return json.Unmarshal(s.Filter, &b.Filter)
}

// Owed is the number of events that are no longer handed out.
type Owed struct {
	Owed int64 `json:"owed" doc:"How many of its failed events and messages are no longer handed out or sent"`
}

var DeleteSubscription = Op[BySubscription, Owed]{
	About: About{
		Topic: subscriptions, Verb: "delete", Scope: Consume, Go: "Unsubscribe", SQL: "unsubscribe", Command: "groups unsubscribe GROUP NAME",
		Does: "Remove a subscription and the events that are owed to it",
		More: "Its failed events, and messages sent to it alone, are no longer handed out; the result has their number. Its dead " +
			"letters stay. The group continues to hand out only events for its other subscriptions.",
		Example: "posthorn groups unsubscribe billing large --yes",
	},
	Call: func(ctx context.Context, a *admin.Admin, in *BySubscription) (out Owed, err error) {
		out.Owed, err = a.Unsubscribe(ctx, in.Group, in.Name)
		return out, err
	},
	Ask: func(_ context.Context, _ *admin.Admin, in *BySubscription) (string, error) {
		return fmt.Sprintf("remove subscription %s of group %s and the events that are owed to it", in.Name, in.Group), nil
	},
	Done: func(in *BySubscription, out Owed) string {
		return fmt.Sprintf("removed subscription %s of group %s, to which %s owed", in.Name, in.Group, Were(out.Owed, "event"))
	},
}
