package server

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/posthorn/posthorn/admin"
	"github.com/posthorn/posthorn/server/internal/in"
)

type listSubscriptionsInput struct {
	in.Namespace
	Group string `query:"group" required:"true"`
}

type subscriptionInput struct {
	in.ByName
	Group string `path:"group" doc:"The name of the group"`
}

type putSubscriptionInput struct {
	in.ByName
	Group string `path:"group" doc:"The name of the group"`
	Body  struct {
		Filter      map[string]json.RawMessage `json:"filter,omitempty" doc:"type, stream, key, tags_any, tags_all and payload; all fields that it has must match. Default: every event"`
		Condition   string                     `json:"conditions_sql,omitempty" doc:"Instead of a filter: an SQL expression over e and s. Needs the scope admin"`
		Params      map[string]json.RawMessage `json:"params,omitempty" doc:"The parameters of the condition"`
		ExpireAfter float64                    `json:"expire_after_seconds,omitempty" minimum:"0" doc:"The subscription is removed when its group was not read for this time; 0 for never"`
		Formerly    []string                   `json:"formerly,omitempty" doc:"Names that the subscription had before: it takes over the events that are owed to them, and they mean its name from now on"`
	}
}

type putSubscriptionOutput struct {
	Body struct {
		ID int64 `json:"id" doc:"The id of the subscription"`
	}
}

type owedOutput struct {
	Body struct {
		Owed int64 `json:"owed" doc:"The number of its failed events and messages that are no longer handed out"`
	}
}

func (s *Server) subscriptions() {
	register(s, operation{
		method: http.MethodGet, path: "/v1/subscriptions", id: "list-subscriptions", tag: "subscriptions",
		summary:     "List the subscriptions of a group",
		description: "Each with its filter or condition, and the number of its retries.",
		scope:       scopeRead,
	}, func(ctx context.Context, c caller, input *listSubscriptionsInput) (*listOf[admin.SubscriptionStatus], error) {
		all, err := s.admin(c).Subscriptions(ctx, input.Group)
		return page(all, ""), err
	})

	register(s, operation{
		method: http.MethodPut, path: "/v1/subscriptions/{group}/{name}", id: "put-subscription", tag: "subscriptions",
		summary:     "Create a subscription, or change it",
		description: "The group is created if it does not exist. A group with subscriptions hands out only events that match one of them.",
		scope:       scopeConsume,
	}, s.putSubscription)

	register(s, operation{
		method: http.MethodDelete, path: "/v1/subscriptions/{group}/{name}", id: "delete-subscription", tag: "subscriptions",
		summary:     "Delete a subscription",
		description: "Its failed events, and messages sent to it alone, are no longer handed out; the response has their number. Its dead letters stay.",
		scope:       scopeConsume,
	}, func(ctx context.Context, c caller, input *subscriptionInput) (output *owedOutput, err error) {
		output = &owedOutput{}
		output.Body.Owed, err = s.admin(c).Unsubscribe(ctx, input.Group, input.Name)
		return output, err
	})
}

func (s *Server) putSubscription(ctx context.Context, c caller, input *putSubscriptionInput) (output *putSubscriptionOutput, err error) {
	b := input.Body
	if b.Condition != "" && !c.may(scopeAdmin) {
		return nil, newProblem(http.StatusForbidden, "conditions in SQL need the scope admin", "Use a filter.")
	}
	subscription, err := readSubscription(b.Filter, b.Condition, b.Params)
	if err != nil {
		return nil, err
	}
	subscription.ExpireAfter, subscription.Formerly = seconds(b.ExpireAfter), b.Formerly
	output = &putSubscriptionOutput{}
	output.Body.ID, err = s.admin(c).Subscribe(ctx, input.Group, input.Name, subscription)
	return output, err
}

// readSubscription returns the subscription with a filter, or with a condition.
func readSubscription(filter map[string]json.RawMessage, condition string, params map[string]json.RawMessage) (admin.Subscription, error) {
	subscription := admin.Subscription{Condition: condition}
	if condition != "" && filter != nil {
		return subscription, badRequest("the body has both filter and conditions_sql", "Send one of them.")
	}
	if _, ok := filter["conditions_sql"]; ok {
		return subscription, badRequest("conditions_sql is not a field of a filter", "Send it beside the filter, not in it.")
	}
	var err error
	if filter != nil {
		if subscription.Filter, err = json.Marshal(filter); err != nil {
			return subscription, err
		}
	}
	if params != nil {
		subscription.Params, err = json.Marshal(params)
	}
	return subscription, err
}
