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
	in.Namespace
	Group string `path:"group" doc:"The name of the group"`
	Name  string `path:"name" doc:"The name of the subscription"`
}

type putSubscriptionInput struct {
	in.Namespace
	Group string `path:"group" doc:"The name of the group"`
	Name  string `path:"name" doc:"The name of the subscription"`
	Body  struct {
		Filter      map[string]json.RawMessage `json:"filter,omitempty" doc:"type, stream, key, tags_any, tags_all and payload; all that is named must match. Default: everything passes"`
		Condition   string                     `json:"conditions_sql,omitempty" doc:"Instead of a filter: an expression over e and s. Needs the scope admin"`
		Params      map[string]json.RawMessage `json:"params,omitempty" doc:"Of the condition"`
		ExpireAfter float64                    `json:"expire_after_seconds,omitempty" minimum:"0" doc:"When its group was not read for so long, it is removed; 0 for never"`
	}
}

type putSubscriptionOutput struct {
	Body struct {
		ID int64 `json:"id" doc:"Of the subscription"`
	}
}

type owedOutput struct {
	Body struct {
		Owed int64 `json:"owed" doc:"How many events were owed to it"`
	}
}

func (s *Server) subscriptions() {
	register(s, operation{
		method: http.MethodGet, path: "/v1/subscriptions", id: "list-subscriptions", tag: "subscriptions",
		summary:     "Subscriptions of a group",
		description: "Each with its filter or condition, and how many events it gets again.",
		scope:       scopeRead,
	}, func(ctx context.Context, c caller, input *listSubscriptionsInput) (*listOf[admin.SubscriptionStatus], error) {
		all, err := s.admin(c).Subscriptions(ctx, input.Group)
		return page(all, ""), err
	})

	register(s, operation{
		method: http.MethodPut, path: "/v1/subscriptions/{group}/{name}", id: "put-subscription", tag: "subscriptions",
		summary:     "Make a subscription, or change what it wants",
		description: "The group is made if there is none. A group with subscriptions hands out only what one of them wants.",
		scope:       scopeConsume,
	}, s.putSubscription)

	register(s, operation{
		method: http.MethodDelete, path: "/v1/subscriptions/{group}/{name}", id: "delete-subscription", tag: "subscriptions",
		summary:     "Remove a subscription with what is owed to it",
		description: "The answer has the number of events that were owed to it, and are not any more.",
		scope:       scopeConsume,
	}, func(ctx context.Context, c caller, input *subscriptionInput) (output *owedOutput, err error) {
		if err := s.checkRemove(ctx, c, input.Group, &input.Name); err != nil {
			return nil, err
		}
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
	if b.Condition != "" && b.Filter != nil {
		return nil, badRequest("there are both filter and conditions_sql", "Send one of them.")
	}
	subscription := admin.Subscription{Condition: b.Condition, ExpireAfter: seconds(b.ExpireAfter)}
	if b.Filter != nil {
		if _, ok := b.Filter["conditions_sql"]; ok {
			return nil, badRequest("conditions_sql is not a field of filters", "It goes beside the filter.")
		}
		if subscription.Filter, err = json.Marshal(b.Filter); err != nil {
			return nil, err
		}
	}
	if b.Params != nil {
		if subscription.Params, err = json.Marshal(b.Params); err != nil {
			return nil, err
		}
	}
	// With an expiry, it can also be the way to remove one.
	if err := unlessNew(s.checkRemove(ctx, c, input.Group, &input.Name)); err != nil {
		return nil, err
	}
	output = &putSubscriptionOutput{}
	output.Body.ID, err = s.admin(c).Subscribe(ctx, input.Group, input.Name, subscription)
	return output, err
}
